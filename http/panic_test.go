package http_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"relay/db/relay"
)

// journal is a log that a test can read while it is written.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// A panic ends one request. The log says where; neither it nor the answer
// repeats what the request held.
func TestAPanicTellsNoSecrets(t *testing.T) {
	t.Parallel()
	var log journal
	r := mustServe(t, func(s *settings) {
		s.api.Logger = slog.New(slog.NewTextHandler(&log, nil))
		s.found = func() { panic("a fault of ours") }
	})
	alice := r.mustIssue("alice^demo")
	c := alice.prepare("POST", "/api/v1/search?q=the-query", `{"query":"the words of the search"}`,
		with("Authorization", "Bearer the-token"), with("Prefer", "wait=5"), with("X-Forwarded-For", "the-forwarded"))
	a := r.mustDo(c)
	a.wantProblem(500, relay.Internal)
	alice.get(whoami).want(200)
	text := log.String()
	if !strings.Contains(text, "a fault of ours") || !strings.Contains(text, "search.go") {
		t.Errorf("the log does not say what and where:\n%s", text)
	}
	for _, secret := range []string{alice.Text, c.nonce, "the-query", "the words of the search", "the-token", "the-forwarded"} {
		if strings.Contains(text, secret) || strings.Contains(string(a.body), secret) {
			t.Errorf("%q is in the log or the answer:\n%s\n%s", secret, text, a.body)
		}
	}
	if strings.Contains(string(a.body), "a fault") {
		t.Errorf("the answer says too much: %s", a.body)
	}
}
