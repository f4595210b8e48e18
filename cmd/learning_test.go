package cmd_test

import (
	"fmt"
	"net/http"
	"testing"
)

func TestAServerThatDoesNotLearn(t *testing.T) {
	t.Parallel()
	p := newPair(t, "--learn=false")
	p.describeBob()
	found := parse[struct {
		ID string `json:"request_id"`
	}](t, p.search(p.alice, "book a flight"))
	body := fmt.Sprintf(`{"to":"bob^talk","payload":{},"search_id":%q}`, found.ID)
	sent := parse[record](t, p.ask(p.alice, "POST", "/api/v1/messages", body).want(t, http.StatusCreated))
	p.ask(p.bob, "POST", "/api/v1/messages/"+sent.MessageID+"/ack", `{"status":"completed","client_ts":"2026-01-01T00:00:00Z"}`).want(t, http.StatusOK)
	p.end() // what was acknowledged would be counted at the latest at the next start
	s := startServer(t, p.db, "--learn-half-life", "30d")
	s.end()
	if got := p.words(); len(got) != 0 {
		t.Errorf("learned %q", got)
	}
	for _, wrong := range []string{"0", "59m", "-1d", "soon"} {
		runRefused(t, []string{"serve", "--db", p.db, "--addr", "127.0.0.1:0", "--learn-half-life=" + wrong}, nil).wantCode(t, 2, "--learn-half-life")
	}
}
