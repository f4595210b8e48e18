package console_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// Under its own name the console works in a browser, and no other program of this machine gets the
// cookie of its session, as one at another port of 127.0.0.1 otherwise would.
func TestNobodyElseGetsTheCookie(t *testing.T) {
	t.Parallel()
	s := mustStage(t, true)
	var mu sync.Mutex
	got := map[string]string{}
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		got[r.URL.Path] = r.Header.Get("Cookie")
		w.Header().Set("Content-Type", "text/html")
	}))
	defer other.Close()
	port := s.url[strings.LastIndexByte(s.url, ':'):]
	b := mustOpen(t)
	b.open("http://" + s.console.Host() + port + "/" + s.console.Fragment())
	b.await(isLive)
	b.open(other.URL + "/named")
	b.open(s.entry("/"))
	b.await(isLive)
	b.open(other.URL + "/plain")
	mu.Lock()
	defer mu.Unlock()
	if cookie, ok := got["/named"]; !ok || cookie != "" {
		t.Errorf("another program got %q, %v", cookie, ok)
	}
	if cookie := got["/plain"]; !strings.Contains(cookie, "relay_console") {
		t.Errorf("the test sees no cookie at all: %q", cookie)
	}
}

// No other name under localhost leads in, and nothing tells the right one.
func TestOnlyItsOwnNameLeadsIn(t *testing.T) {
	t.Parallel()
	s := mustStage(t, false)
	own := s.console.Host()
	port := s.url[strings.LastIndexByte(s.url, ':'):]
	for host, want := range map[string]int{own + port: http.StatusUnauthorized, strings.ToUpper(own) + port: http.StatusUnauthorized, "x" + own + port: http.StatusMisdirectedRequest,
		"aaaaaaaaaaaaaaaa.localhost" + port: http.StatusMisdirectedRequest, "x.localhost": http.StatusMisdirectedRequest} {
		r, err := http.NewRequestWithContext(t.Context(), "GET", s.url+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		if status, text := s.do(s.visitor(), r); status != want || strings.Contains(text, own) {
			t.Errorf("%s: %d, want %d: %s", host, status, want, text)
		}
	}
	if again := mustStage(t, false); again.console.Host() == own || len(own) != 16+len(".localhost") {
		t.Errorf("the names %s and %s", own, again.console.Host())
	}
}
