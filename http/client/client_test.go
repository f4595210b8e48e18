package client_test

import (
	"errors"
	"fmt"
	nethttp "net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"relay/db/relay"
	"relay/http"
	"relay/http/client"
)

func TestRequestsAreSignedAndBodiesArriveAsTheyAre(t *testing.T) {
	r := mustServe(t)
	bob := r.mustIssue("bob^test")
	for name, alice := range map[string]*mecha{
		"by the key":              r.mustIssue("alice^test"),
		"by a secret of its own":  r.mustIssue("carol^test", func(i *relay.IssueKey) { i.WithSecret = true }),
		"at a URL that ends in /": {Client: bob.at(r.url + "/"), r: r, name: bob.name},
	} {
		if own, err := alice.Address(t.Context()); err != nil || own != alice.name {
			t.Errorf("%s: %q, %v", name, own, err)
		}
		payload := `{ "b": 1.50,  "a": "<für Bob>" }`
		m := alice.mustSend(bob, payload)
		if !alice.record(m.MessageID).Signed {
			t.Errorf("%s: the message is not signed", name)
		}
		resp, err := bob.Do(t.Context(), "GET", "/api/v1/messages/"+m.MessageID+"/payload", nil, nil)
		if err != nil || resp.Err() != nil || string(resp.Body) != payload {
			t.Errorf("%s: %v, %+v", name, err, resp)
		}
	}
	var m sent
	err := bob.Call(t.Context(), "POST", "/api/v1/messages", map[string]any{"to": "bob^test", "payload": map[string]int{"n": 1}}, &m)
	if err != nil || !strings.HasPrefix(m.MessageID, "msg_") {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestDoGivesTheWholeAnswer(t *testing.T) {
	r := mustServe(t)
	alice, _ := r.mustPair()
	body := []byte(`{"to":"bob^test","payload":{}}`)
	first, err := alice.Do(t.Context(), "POST", "/api/v1/messages", body, nethttp.Header{"Idempotency-Key": {"17"}})
	if err != nil || first.Status != 201 || first.Proto != "HTTP/1.1" || first.Err() != nil {
		t.Fatalf("%+v, %v", first, err)
	}
	again, err := alice.Do(t.Context(), "POST", "/api/v1/messages", body, nethttp.Header{"Idempotency-Key": {"17"}})
	if err != nil || again.Header.Get("Idempotent-Replayed") != "true" || string(again.Body) != string(first.Body) {
		t.Errorf("%+v, %v", again, err)
	}
	// A header of the caller wins.
	resp, err := alice.Do(t.Context(), "GET", "/api/v1/whoami", nil, nethttp.Header{"X-Signature": {strings.Repeat("A", 43) + "="}})
	if err != nil || !client.Refused(resp.Err(), relay.InvalidSignature) {
		t.Errorf("%+v, %v", resp, err)
	}
	for _, c := range []struct{ method, path string }{{"GET", "/api/v1/%zz"}, {"G E T", "/"}, {"GET", "/\x00"}} {
		if _, err := alice.Do(t.Context(), c.method, c.path, nil, nil); !errors.Is(err, client.ErrInvalidRequest) || client.Temporary(err) || !client.NothingDone(err) {
			t.Errorf("%s %q: %v", c.method, c.path, err)
		}
	}
}

func TestRefusals(t *testing.T) {
	r := mustServe(t, func(c *http.Config) { c.RateLimit, c.RateBurst = 0.001, 3 }) // nothing is added while the test runs
	alice, bob := r.mustPair()
	var out struct{}
	err := alice.Call(t.Context(), "POST", "/api/v1/messages", map[string]any{"to": "bbo^test", "payload": out}, &out)
	var refused *client.Refusal
	if !errors.As(err, &refused) {
		t.Fatal(err)
	}
	if refused.Status != 404 || refused.Code != relay.RecipientNotFound || !slices.Equal(refused.DidYouMean, []relay.Address{"bob^test"}) ||
		refused.RequestID == "" || !strings.Contains(refused.Detail, "did you mean bob^test?") || refused.RetryAfter != 0 {
		t.Errorf("%+v", refused)
	}
	if text := err.Error(); text != refused.Detail+" (404 recipient_not_found)" {
		t.Errorf("%q", text)
	}
	wrapped := fmt.Errorf("in vain: %w", err)
	if !client.Refused(wrapped, relay.CursorNotFound, relay.RecipientNotFound) || client.Refused(err, relay.CursorNotFound) || client.Refused(errors.New("x"), "") {
		t.Error("Refused does not tell codes apart")
	}
	if client.Temporary(wrapped) || !client.NothingDone(wrapped) {
		t.Error("a recipient that does not exist is final, and nothing was sent")
	}

	// Too many requests: later, the same will do.
	for range 3 {
		bob.Address(t.Context())
	}
	if _, err = bob.Address(t.Context()); !client.Refused(err, relay.RateLimited) || !client.Temporary(err) || !client.NothingDone(err) {
		t.Errorf("%v", err)
	}
	if errors.As(err, &refused); refused.RetryAfter < time.Second {
		t.Errorf("%+v", refused)
	}
	b := client.Backoff{Most: time.Second}
	if d := b.Pause(err); d < refused.RetryAfter {
		t.Errorf("the relay asks for %v, and the pause is %v", refused.RetryAfter, d)
	}

	stranger := mustServe(t).mustIssue("alice^test").at(r.url)
	if _, err := stranger.Address(t.Context()); !client.Refused(err, relay.UnknownKey) || client.Temporary(err) {
		t.Errorf("%v", err)
	}
}

// A proxy before the relay answers without a problem document, and redirects.
func TestAnswersOfOthers(t *testing.T) {
	alice := mustServe(t).mustIssue("alice^test")
	seen := make(chan *nethttp.Request, 10)
	other := mustServeOther(t, func(_ nethttp.ResponseWriter, r *nethttp.Request) { seen <- r })
	for _, c := range []struct {
		status    int
		body      string
		temporary bool
	}{{502, "<html>bad gateway</html>", true}, {404, "", false}, {403, `{"code":17}`, false}, {302, "", false}, {429, "null", true}} {
		there := mustServeOther(t, func(w nethttp.ResponseWriter, _ *nethttp.Request) {
			w.Header().Set("Location", other)
			w.WriteHeader(c.status)
			w.Write([]byte(c.body))
		})
		_, err := alice.at(there).Address(t.Context())
		var refused *client.Refusal
		if !errors.As(err, &refused) || refused.Status != c.status || refused.Code != "" || client.Temporary(err) != c.temporary {
			t.Errorf("%d: %+v", c.status, err)
		}
		if want := fmt.Sprintf("the relay answered %d %s", c.status, nethttp.StatusText(c.status)); err.Error() != want {
			t.Errorf("%q, want %q", err, want)
		}
	}
	if len(seen) > 0 {
		t.Errorf("the key went to another host: %v", (<-seen).Header)
	}
}

func TestOneClientForManyGoroutines(t *testing.T) {
	r := mustServe(t)
	alice, bob := r.mustPair()
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 5 {
				alice.mustSend(bob, `{}`)
			}
		})
	}
	wg.Wait()
	if n := bob.received(); n != 80 {
		t.Errorf("bob has %d messages", n)
	}
}

func TestConfigThatCannotBeUsed(t *testing.T) {
	const secret = "mk_secret"
	for _, c := range []struct {
		config client.Config
		field  string
	}{
		{client.Config{URL: "127.0.0.1:8080", Key: secret}, "URL"},
		{client.Config{URL: "ftp://" + secret, Key: secret}, "URL"},
		{client.Config{URL: "http://", Key: secret}, "URL"},
		{client.Config{URL: "http://[::1/" + secret, Key: secret}, "URL"},
		{client.Config{URL: secret, Key: secret}, "URL"},
		{client.Config{URL: "http://127.0.0.1:8080"}, "Key"},
		{client.Config{URL: "http://127.0.0.1:8080", Key: secret + "\nX-Nonce: 1"}, "Key"},
		{client.Config{URL: "http://127.0.0.1:8080", Key: secret + "\x7f"}, "Key"},
	} {
		made, err := client.New(c.config)
		var config *client.ConfigError
		if made != nil || !errors.As(err, &config) || config.Field != c.field || strings.Contains(err.Error(), "secret") || err.Error() != c.field+" "+config.Reason {
			t.Errorf("%+v: %v, %v", c.config, made, err)
		}
	}
}

// The path that is signed is the one that the relay sees, however the client spells it
// and whatever precedes it.
func TestPathsAreSignedAsTheRelaySeesThem(t *testing.T) {
	r := mustServe(t)
	alice := r.mustIssue("alice^test")
	target, err := url.Parse(r.url)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(nethttp.StripPrefix("/a relay", httputil.NewSingleHostReverseProxy(target)))
	defer proxy.Close()
	for _, at := range []string{r.url, r.url + "/", proxy.URL + "/a%20relay", proxy.URL + "/a%20relay/"} {
		for _, path := range []string{
			"/api/v1/whoami", "/api/v1/mecha/alice^test/inbox", "/api/v1/mecha/alice%5Etest/inbox",
			"/api/v1/mecha/alice^test/messages?limit=3&peer=alice^test", "/api/v1/whoami?a|b=c%7Cd", "/api/v1/whoami?",
		} {
			a, err := alice.at(at).Do(t.Context(), "GET", path, nil, nil)
			if err != nil || a.Status != 200 {
				t.Errorf("%s%s: %v, %s", at, path, err, a.Body)
			}
		}
		s, err := alice.at(at).Dial(t.Context(), alice.name, "sync_limit=5&x=a|b")
		if err != nil {
			t.Errorf("%s: the socket: %v", at, err)
			continue
		}
		s.Close()
	}
}
