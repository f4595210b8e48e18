package cmd_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// words reads by SQLite alone what searches have learned of bob.
func (p *pair) words() (all []string) {
	p.t.Helper()
	d := byHand(p.t, p.db)
	defer d.Close()
	rows, err := d.Query("SELECT counts FROM learned JOIN mecha ON id = mecha WHERE address = 'bob^talk' ORDER BY first")
	if err != nil {
		p.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var counts []byte // words and the shares of each in turn, with their lengths in one byte
		if err := rows.Scan(&counts); err != nil {
			p.t.Fatal(err)
		}
		for i := 0; i < len(counts); i += 1 + int(counts[i]) {
			end := i + 1 + int(counts[i])
			all = append(all, string(counts[i+1:end]))
			i = end
		}
	}
	return all
}

func (p *pair) wantWords(want ...string) {
	p.t.Helper()
	eventually(p.t, patience, fmt.Sprintf("the words are %q", want), func() bool { return slices.Equal(p.words(), want) })
}

// describeBob gives bob a profile, and waits until searches find it.
func (p *pair) describeBob() {
	p.t.Helper()
	p.ask(p.bob, "PUT", "/api/v1/mecha/bob^talk/profile", `{"description":"books flights"}`).want(p.t, 200)
	eventually(p.t, patience, "bob is found", func() bool {
		return strings.Contains(string(p.search(p.alice, "flights")), "bob^talk")
	})
}

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
