package cmd_test

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// bystander uses the server while others send: its writes share their
// transactions, and have promises of their own.
type bystander interface {
	work()    // until the server is gone
	resolve() // after the restart: checks that all that was answered still holds
	report() string
	turns() *chan *letter
}

// beside is the part that all bystanders share. A bystander works only when a sender
// gives it a turn, because the senders are the load.
type beside struct {
	*crash
	turn chan *letter // one that has just been accepted
}

func (b *beside) turns() *chan *letter { return &b.turn }

// beat returns all bystanders that are not at work their turn.
func (c *crash) beat(l *letter) {
	for _, b := range c.bystanders {
		select {
		case *b.turns() <- l:
		default:
		}
	}
}

// next waits for a turn; nil when the server is gone.
func (b *beside) next() *letter {
	select {
	case l := <-b.turn:
		return l
	case <-b.dead:
		return nil
	}
}

// self replaces its own profile, with a number that grows.
type self struct {
	beside
	agent
	sent, answered int
	puts           []request // the answered ones of late
	restarts       int
}

func (b *self) work() {
	for b.next() != nil {
		b.sent++
		req := b.request("PUT", "/api/v1/mecha/"+b.Address+"/profile", fmt.Sprintf(`{"description":"revision %d"}`, b.sent))
		ans, err := req.to(b.server.url)
		if err != nil {
			return
		}
		if ans.status != http.StatusOK {
			b.t.Errorf("a profile got %d: %s", ans.status, ans.body)
			return
		}
		b.answered = b.sent
		b.puts = append(b.puts, req)[max(0, len(b.puts)-20):]
	}
}

var revision = regexp.MustCompile(`"revision (\d+)"`)

func (b *self) resolve() {
	b.restarts++
	if b.answered == 0 {
		return
	}
	for _, req := range b.puts {
		if ans, err := req.to(b.server.url); err != nil || ans.code() != "nonce_reused" {
			b.t.Errorf("the replay of a profile: %v, %d %s", err, ans.status, ans.body)
			return
		}
	}
	ans := b.server.ask(b.agent, "GET", "/api/v1/mecha/"+b.Address+"/profile", "")
	n := 0
	if m := revision.FindSubmatch(ans.body); m != nil {
		n, _ = strconv.Atoi(string(m[1]))
	}
	if n < b.answered || n > b.sent {
		b.t.Errorf("the profile is revision %d; answered %d, sent %d", n, b.answered, b.sent)
	}
}

func (b *self) report() string { return fmt.Sprintf("%d profiles", b.answered) }

// seeker searches. A stored answer does not change.
type seeker struct {
	beside
	agent
	answers  map[string]string // request id → what it got
	searched int
	kept     int
}

var took = regexp.MustCompile(`"online":(true|false)|"last_seen":("[^"]*"|null)`) // what may differ

func (b *seeker) work() {
	b.answers = map[string]string{}
	for b.next() != nil {
		ans, err := b.request("POST", "/api/v1/search", `{"query":"revision"}`, "Prefer", "wait=5").to(b.server.url)
		if err != nil {
			return
		}
		if ans.status != http.StatusOK && ans.status != http.StatusAccepted {
			b.t.Errorf("a search got %d: %s", ans.status, ans.body)
			return
		}
		b.searched++
		if ans.status == http.StatusOK {
			id := parse[struct {
				ID string `json:"request_id"`
			}](b.t, ans.body).ID
			b.answers[id] = took.ReplaceAllString(string(ans.body), "")
		}
	}
}

func (b *seeker) resolve() {
	for id, before := range b.answers {
		ans := b.server.ask(b.agent, "GET", "/api/v1/search/"+id, "")
		switch {
		case ans.code() == "search_not_found": // it is written with the next commit, and not waited for
		case ans.status != http.StatusOK || took.ReplaceAllString(string(ans.body), "") != before:
			b.t.Errorf("search %s was %s, and is %d %s", id, before, ans.status, ans.body)
			return
		default:
			b.kept++
		}
	}
	b.answers = nil
}

func (b *seeker) report() string {
	return fmt.Sprintf("%d searches; %d answers read after the kill", b.searched, b.kept)
}

// watcher looks at messages again and again: a state never goes back.
type watcher struct {
	beside
	seen  []seen
	ranks map[string]int // message id → the state it had
	reads int
}

// seen is a copy of a letter's sender and id, because the sender may still write to
// the letter.
type seen struct {
	by agent
	id string
}

const maxWatched = 100

func (b *watcher) work() {
	for l := b.next(); l != nil; l = b.next() {
		b.seen = append(b.seen, seen{l.by, l.id})
		if len(b.seen) > maxWatched {
			delete(b.ranks, b.seen[0].id)
			b.seen = b.seen[1:]
		}
		for range 3 {
			if !b.read(b.seen[b.reads%len(b.seen)]) {
				return
			}
		}
	}
}

// read reads a message's state, which must not have gone back.
func (b *watcher) read(l seen) (answered bool) {
	ans, err := l.by.request("GET", "/api/v1/messages/"+l.id, "").to(b.server.url)
	if err != nil {
		return false
	}
	rank := slices.Index([]string{"queued", "delivered", "acknowledged"}, parse[record](b.t, ans.body).State)
	if ans.status != http.StatusOK || rank < b.ranks[l.id] {
		b.t.Errorf("%s had state %d, and is %d %s", l.id, b.ranks[l.id], ans.status, ans.body)
	}
	b.ranks[l.id] = rank
	b.reads++
	return true
}

func (b *watcher) resolve() {
	for _, l := range b.seen {
		if !b.read(l) {
			b.t.Errorf("%s cannot be read", l.id)
		}
	}
}

func (b *watcher) report() string { return fmt.Sprintf("%d states read", b.reads) }

// operator issues and revokes keys by commands of other processes, which do not
// care whether a server runs.
type operator struct {
	beside
	live, revoked []agent
}

func (b *operator) work() {
	for n := 0; b.next() != nil; n++ {
		if n%2 == 0 || len(b.live) < 3 {
			b.live = append(b.live, issue(b.t, b.db, fmt.Sprintf("op%d^crash", n%4))...)
			continue
		}
		a := b.live[0]
		mustRelay(b.t, "key", "revoke", a.KeyID, "--db", b.db)
		b.live, b.revoked = b.live[1:], append(b.revoked, a)
	}
}

func (b *operator) resolve() {
	for _, a := range b.live {
		if ans := b.server.ask(a, "GET", "/api/v1/whoami", ""); ans.status != http.StatusOK || !strings.Contains(string(ans.body), a.KeyID) {
			b.t.Errorf("key %s of %s: %d %s", a.KeyID, a.Address, ans.status, ans.body)
		}
	}
	for _, a := range b.revoked {
		if ans := b.server.ask(a, "GET", "/api/v1/whoami", ""); ans.code() != "key_revoked" {
			b.t.Errorf("the revoked key %s works again: %d %s", a.KeyID, ans.status, ans.body)
		}
	}
}

func (b *operator) report() string {
	return fmt.Sprintf("%d keys issued by commands, %d revoked", len(b.live)+len(b.revoked), len(b.revoked))
}
