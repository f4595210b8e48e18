package console_test

import (
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"relay/http/console"
)

// Without the cookie of a session, a program gets nothing, and a person the page that lets
// them in. A cookie from an earlier start is worth nothing.
func TestOnlyASessionMayLook(t *testing.T) {
	t.Parallel()
	s := mustStage(t, false)
	alice := s.mustIssue("alice^demo", "")
	m := s.mustSend(0, alice, "alice^demo", `{"secret":"tell nobody"}`)
	inside, outside := s.enter(), s.visitor()
	for _, path := range []string{"/", "/health", "/message/" + string(m.ID), "/message/" + string(m.ID) + "/payload", "/message/" + string(m.ID) + "/curl", "/events", "/live", "/session", "/nowhere"} {
		status, text := s.get(outside, path)
		if status != http.StatusUnauthorized || strings.Contains(text, "tell nobody") || strings.Contains(text, "alice") {
			t.Errorf("%s without a session: %d\n%s", path, status, text)
		}
	}
	if status, text := s.get(inside, "/message/"+string(m.ID)+"/payload"); status != http.StatusOK || text != `{"secret":"tell nobody"}` {
		t.Errorf("with a session: %d %s", status, text)
	}
	if status, _ := s.get(inside, "/static/console.js"); status != http.StatusOK {
		t.Error("the script: ", status)
	}
	if status, _ := s.post(inside, "/leave", nil); status != http.StatusSeeOther {
		t.Error("to leave: ", status)
	}
	if status, _ := s.get(inside, "/"); status != http.StatusUnauthorized {
		t.Error("after leaving: ", status)
	}
}

// mustStageWithClock is mustStage for a console whose time goes by only when the test says so.
func mustStageWithClock(t *testing.T, options ...func(*console.Config)) (s *stage, goOn func(time.Duration)) {
	t.Helper()
	began, gone := time.Now(), new(atomic.Int64)
	s = mustStage(t, false, append(options, func(c *console.Config) {
		c.Now = func() time.Time { return began.Add(time.Duration(gone.Load())) }
	})...)
	return s, func(by time.Duration) { gone.Add(int64(by)) }
}

// A wrong token is refused, and after five of them with another answer. The right one always lets
// in: nobody else on this machine can keep its owner out.
func TestWrongTokensAreFewAtATime(t *testing.T) {
	t.Parallel()
	s, goOn := mustStageWithClock(t)
	c := s.visitor()
	for n := range 7 { // within 2 s, in which one is forgiven
		goOn(300 * time.Millisecond)
		status, _ := s.post(c, "/session", url.Values{"secret": {"wrong"}})
		if want := map[bool]int{true: http.StatusForbidden, false: http.StatusTooManyRequests}[n < 5]; status != want {
			t.Errorf("wrong token %d: %d, want %d", n+1, status, want)
		}
	}
	_, token, _ := strings.Cut(s.console.Fragment(), "=")
	if status, _ := s.post(c, "/session", url.Values{"secret": {token}}); status != http.StatusNoContent {
		t.Error("the right one after them: ", status)
	}
	goOn(2 * time.Second)
	if status, _ := s.post(s.visitor(), "/session", url.Values{"secret": {"wrong"}}); status != http.StatusForbidden {
		t.Error("a wrong one after one was forgiven: ", status)
	}
	if log := s.log.String(); strings.Contains(log, token) || strings.Contains(log, "wrong") || !strings.Contains(log, "console access refused") {
		t.Errorf("the log: %s", log)
	}
}

// A password could be guessed: after five wrong ones the right one has to wait, too.
func TestPasswordsAreFewAtATime(t *testing.T) {
	t.Parallel()
	s, goOn := mustStageWithClock(t, func(c *console.Config) { c.Password, c.TLS = "correct horse battery", true })
	c := s.visitor()
	for range 5 { // within 2 s, in which one is forgiven
		goOn(300 * time.Millisecond)
		s.post(c, "/session", url.Values{"secret": {"wrong"}})
	}
	for _, want := range []int{http.StatusTooManyRequests, http.StatusNoContent} {
		if status, _ := s.post(c, "/session", url.Values{"secret": {"correct horse battery"}}); status != want {
			t.Errorf("%d, want %d", status, want)
		}
		goOn(2 * time.Second)
	}
}

// Guesses of others do not keep out a browser that was let in before. Its own do, and no browser gives itself such
// a cookie.
func TestGuessesOfOthersKeepOutNoKnownBrowser(t *testing.T) {
	t.Parallel()
	s, goOn := mustStageWithClock(t, func(c *console.Config) { c.Password = "correct horse battery" })
	at, err := url.Parse(s.url + "/session")
	if err != nil {
		t.Fatal(err)
	}
	try := func(c *http.Client, secret string, want int) {
		t.Helper()
		if status, _ := s.post(c, "/session", url.Values{"secret": {secret}}); status != want {
			t.Errorf("%s: %d, want %d", secret, status, want)
		}
	}
	owner, other, forger := s.visitor(), s.visitor(), s.visitor()
	try(owner, "correct horse battery", http.StatusNoContent)
	for _, k := range owner.Jar.Cookies(at) {
		k.Value += "x"
		forger.Jar.SetCookies(at, []*http.Cookie{k})
	}
	for range 6 {
		s.post(other, "/session", url.Values{"secret": {"wrong"}})
	}
	try(other, "correct horse battery", http.StatusTooManyRequests)
	try(forger, "correct horse battery", http.StatusTooManyRequests)
	s.post(owner, "/leave", nil)
	try(owner, "correct horse battery", http.StatusNoContent)
	for range 6 {
		s.post(owner, "/session", url.Values{"secret": {"wrong"}})
	}
	try(owner, "correct horse battery", http.StatusTooManyRequests)
	goOn(2 * time.Second)
	try(owner, "correct horse battery", http.StatusNoContent)
}

// The wrong attempts of one customer count together, whatever address of theirs they come from.
func TestWrongAttemptsCountByBlock(t *testing.T) {
	t.Parallel()
	for _, same := range [][2]string{{"[2001:db8:1:2::1]:5", "[2001:db8:1:2:ffff::9]:7"}, {"127.0.0.1:1", "[::1]:2"}, {"127.0.0.1:1", "127.9.9.9:2"}, {"10.0.0.1:1", "[::ffff:10.0.0.1]:2"}, {"[fe80::1%eth0]:1", "[fe80::2%eth1]:1"}} {
		if a, b := console.ClientOf(same[0]), console.ClientOf(same[1]); a != b {
			t.Errorf("%v: %s and %s", same, a, b)
		}
	}
	for _, other := range [][2]string{{"[2001:db8:1:2::1]:5", "[2001:db8:1:3::1]:5"}, {"10.0.0.1:1", "10.0.0.2:1"}, {"10.0.0.1:1", "127.0.0.1:1"}} {
		if a, b := console.ClientOf(other[0]), console.ClientOf(other[1]); a == b {
			t.Errorf("%v: both are %s", other, a)
		}
	}
}

// A token in a query lets nobody in: it would be in histories and logs.
func TestATokenInAQueryIsNoToken(t *testing.T) {
	t.Parallel()
	s := mustStage(t, false)
	_, token, _ := strings.Cut(s.console.Fragment(), "=")
	if status, _ := s.get(s.visitor(), "/?t="+token+"&secret="+token); status != http.StatusUnauthorized {
		t.Error(status)
	}
	if status, _ := s.post(s.visitor(), "/session?secret="+token, nil); status != http.StatusForbidden {
		t.Error("in the query of the POST: ", status)
	}
}

// A browser's request for a page of another origin, and for a page whose own name leads to
// this machine, is refused although it has the cookie.
func TestOtherOriginsAndNamesAreRefused(t *testing.T) {
	t.Parallel()
	s := mustStage(t, false)
	c := s.enter()
	try := func(method, path, host string, header ...string) int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, s.url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if host != "" {
			r.Host = host
		}
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		status, _ := s.do(c, r)
		return status
	}
	port := s.url[strings.LastIndexByte(s.url, ':'):]
	for _, host := range []string{"evil.example", "evil.example" + port, "127.0.0.1.evil.example", "10.0.0.1" + port, "0.0.0.0" + port, "localhost.evil.example"} {
		if status := try("GET", "/", host); status != http.StatusMisdirectedRequest {
			t.Errorf("Host %s: %d", host, status)
		}
	}
	for _, host := range []string{"127.0.0.1" + port, "localhost" + port, "LOCALHOST" + port, "[::1]" + port} {
		if status := try("GET", "/health", host); status == http.StatusMisdirectedRequest {
			t.Errorf("Host %s: %d", host, status)
		}
	}
	if status := try("POST", "/leave", "", "Origin", "http://evil.example", "Sec-Fetch-Site", "cross-site"); status != http.StatusForbidden {
		t.Error("a POST of another origin: ", status)
	}
	if status := try("POST", "/session", "", "Origin", "http://127.0.0.1:1", "Sec-Fetch-Site", "same-site"); status != http.StatusForbidden {
		t.Error("a POST of another port: ", status)
	}
	upgrade := []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="}
	if status := try("GET", "/live", "", append(upgrade, "Origin", "http://evil.example")...); status != http.StatusForbidden {
		t.Error("a socket of another origin: ", status)
	}
	if status := try("GET", "/live", "", upgrade...); status != http.StatusForbidden {
		t.Error("a socket without an origin: ", status)
	}
	if status := try("GET", "/live", ""); status != http.StatusUpgradeRequired {
		t.Error("no socket: ", status)
	}
}

// Every answer says that it must not be kept, shown in a frame, or read as something else.
func TestEveryAnswerHasItsHeaders(t *testing.T) {
	t.Parallel()
	s := mustStage(t, false)
	c := s.enter()
	for _, path := range []string{"/", "/static/console.js", "/static/nothing", "/nowhere", "/message/msg_x/payload"} {
		for _, client := range []*http.Client{c, s.visitor()} {
			answer, err := client.Get(s.url + path)
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
			csp := answer.Header.Get("Content-Security-Policy")
			for _, want := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "base-uri 'none'", "frame-ancestors 'none'", "form-action 'self'", "require-trusted-types-for 'script'"} {
				if !strings.Contains(csp, want) {
					t.Errorf("%s: the policy %q lacks %q", path, csp, want)
				}
			}
			if strings.Contains(csp, "unsafe") {
				t.Errorf("%s: %s", path, csp)
			}
			for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cross-Origin-Resource-Policy": "same-origin"} {
				if got := answer.Header.Get(name); got != want {
					t.Errorf("%s: %s is %q", path, name, got)
				}
			}
			if cache := answer.Header.Get("Cache-Control"); !strings.Contains(cache, "no-store") && !strings.HasPrefix(path, "/static/") {
				t.Errorf("%s may be kept: %q", path, cache)
			}
		}
	}
}

// The cookie is for the browser alone, and ends.
func TestTheCookieIsForTheBrowserAlone(t *testing.T) {
	t.Parallel()
	var past atomic.Int64
	s := mustStage(t, false, func(c *console.Config) {
		c.Now = func() time.Time { return time.Now().Add(time.Duration(past.Load())) }
	})
	_, token, _ := strings.Cut(s.console.Fragment(), "=")
	answer, err := http.PostForm(s.url+"/session", url.Values{"secret": {token}})
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	cookies := answer.Cookies()
	if len(cookies) != 1 || !cookies[0].HttpOnly || cookies[0].SameSite != http.SameSiteStrictMode || cookies[0].Path != "/" || strings.Contains(cookies[0].Value, token) {
		t.Fatalf("%+v", cookies)
	}
	ask := func() int {
		r, err := http.NewRequestWithContext(t.Context(), "GET", s.url+"/session", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.AddCookie(cookies[0])
		status, _ := s.do(http.DefaultClient, r)
		return status
	}
	if status := ask(); status != http.StatusNoContent {
		t.Error("at once: ", status)
	}
	past.Store(int64(12*time.Hour + time.Minute))
	if status := ask(); status != http.StatusUnauthorized {
		t.Error("after half a day: ", status)
	}
	again := mustStage(t, false)
	r, _ := http.NewRequest("GET", again.url+"/session", nil)
	r.AddCookie(&http.Cookie{Name: "relay_console_" + again.url[strings.LastIndexByte(again.url, ':')+1:], Value: cookies[0].Value})
	if status, _ := again.do(http.DefaultClient, r); status != http.StatusUnauthorized {
		t.Error("the cookie of another start: ", status)
	}
}

// With a password, the token of the start lets nobody in, and no URL has one.
func TestAPasswordReplacesTheToken(t *testing.T) {
	t.Parallel()
	s := mustStage(t, false, func(c *console.Config) { c.Password, c.TLS = "correct horse battery", true })
	if f := s.console.Fragment(); f != "" {
		t.Error(f)
	}
	answer, err := http.PostForm(s.url+"/session", url.Values{"secret": {"correct horse battery"}})
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if c := answer.Cookies(); answer.StatusCode != http.StatusNoContent || len(c) != 2 || !c[0].Secure || !c[1].Secure {
		t.Error(answer.Status, c)
	}
	if status, text := s.get(s.visitor(), "/"); status != http.StatusUnauthorized || !strings.Contains(text, "Password") {
		t.Error(status, text)
	}
}

// Everything that the console serves is in the program, and small.
func TestTheConsoleIsSmall(t *testing.T) {
	t.Parallel()
	if n := console.Embedded(); n > 100<<10 || n < 10<<10 {
		t.Errorf("%d bytes are embedded", n)
	}
}
