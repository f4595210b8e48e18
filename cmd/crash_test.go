package cmd_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// The promise that the relay is built on: what got its 201 is there, once, in
// order, whatever happens to the process. Sixteen senders and four recipients,
// who also listen on WebSockets, work while the server is killed and started
// again on the same file; whoever missed an answer asks again, and whoever
// listened resumes where it was; then every history is read and compared with
// what each of them was told.
func TestKilledUnderLoadItLosesAndDoublesNothing(t *testing.T) {
	notOnWindows(t, "there is no kill -9")
	t.Parallel()
	rounds := 20
	if testing.Short() {
		rounds = 5
	}
	c := newCrash(t)
	for range rounds {
		c.round()
	}
	c.start()
	c.replayEverything()
	c.catchUp()
	c.compare()
	c.report(rounds)
}

const (
	crashSenders    = 16
	crashRecipients = 4
)

type crash struct {
	t          *testing.T
	db         string
	server     *server
	senders    []*sender
	recipients []*recipient

	accepted  atomic.Int64 // 201s of this round
	target    int64        // … at which the server is killed
	kill      func()       // once is enough
	dead      chan struct{}
	committed atomic.Int64 // retries that found their first attempt committed
	fresh     atomic.Int64 // retries that made the message
}

// letter is one message that a sender tried to send.
type letter struct {
	token     string // stands in the payload, and in no other
	to        string
	request   request // the first attempt
	keyed     bool    // it has an Idempotency-Key
	outcome   outcome
	id        string // "" though accepted: the retry said that it had been committed
	createdAt time.Time
	retried   bool
}

type outcome int

const (
	unknown outcome = iota
	accepted
	refused
)

// deed is something that a recipient did to a message.
type deed struct {
	letter  *letter
	request request
	status  string // the acknowledgement; "" for deliver
	outcome outcome
}

type sender struct {
	*crash
	agent
	letters []*letter
}

type recipient struct {
	*crash
	agent
	mail  chan *letter
	deeds []*deed
	heard []string // message ids that were pushed; the first one is where the stream starts
}

func newCrash(t *testing.T) *crash {
	c := &crash{t: t, db: file(t)}
	addresses := make([]string, crashSenders+crashRecipients)
	for i := range addresses {
		addresses[i] = fmt.Sprintf("m%d^crash", i)
	}
	for i, a := range issue(t, c.db, addresses...) {
		if i < crashSenders {
			c.senders = append(c.senders, &sender{crash: c, agent: a})
		} else {
			c.recipients = append(c.recipients, &recipient{crash: c, agent: a})
		}
	}
	c.start()
	for i, r := range c.recipients { // a cursor for each, from one who is not compared
		m := c.server.send(c.recipients[(i+1)%len(c.recipients)].agent, r.Address, `{}`)
		r.heard = []string{m.MessageID}
	}
	c.server.kill()
	return c
}

func (c *crash) start() {
	c.server = startServer(c.t, c.db, "--rate-limit", "0", "--auth-failure-limit", "0", "--max-pending", "0")
}

// each runs f for all senders and g for all recipients, at the same time.
func (c *crash) each(f func(*sender), g func(*recipient)) {
	var wg sync.WaitGroup
	for _, s := range c.senders {
		wg.Go(func() { f(s) })
	}
	for _, r := range c.recipients {
		wg.Go(func() { g(r) })
	}
	wg.Wait()
	if c.t.Failed() {
		c.t.FailNow()
	}
}

// round starts the server, settles what the last kill left open, works, and kills.
func (c *crash) round() {
	c.start()
	c.each((*sender).settle, (*recipient).settle)
	c.accepted.Store(0)
	enough, kill := context.WithTimeout(c.t.Context(), patience)
	c.target, c.kill, c.dead = 100+rand.Int64N(1500), kill, make(chan struct{})
	for _, r := range c.recipients {
		r.mail = make(chan *letter, 1000)
	}
	go func() {
		defer close(c.dead)
		<-enough.Done()
		if n := c.accepted.Load(); n < c.target {
			c.t.Errorf("only %d of %d messages were accepted", n, c.target)
		}
		time.Sleep(rand.N(3 * time.Millisecond)) // not just after a commit: at any moment
		c.server.kill()
	}()
	c.each((*sender).work, func(r *recipient) {
		var wg sync.WaitGroup
		wg.Go(func() { r.listen(func() bool { return false }) })
		r.work()
		wg.Wait()
	})
	<-c.dead
}

// listen hears what is pushed, from where it was, until it has enough or the server is gone.
func (r *recipient) listen(enough func() bool) {
	ctx, cancel := context.WithTimeout(r.t.Context(), 2*patience)
	defer cancel()
	query := "?sync_limit=1000&since_message_id=" + r.heard[len(r.heard)-1]
	conn, _, err := websocket.Dial(ctx, r.server.url+"/api/v1/ws/mecha/"+r.Address+query,
		&websocket.DialOptions{HTTPHeader: r.request("GET", "", "").header})
	if err != nil {
		return // killed before
	}
	defer conn.CloseNow()
	conn.SetReadLimit(1 << 20)
	for !enough() {
		_, frame, err := conn.Read(ctx)
		if err != nil {
			return
		}
		m := parse[record](r.t, frame)
		r.heard = append(r.heard, m.MessageID)
	}
}

// work sends until the server is gone.
func (s *sender) work() {
	for {
		l := s.write()
		ans, err := l.request.to(s.server.url)
		switch {
		case err != nil:
			if l.outcome == refused {
				s.letters = s.letters[:len(s.letters)-1] // it could only have been refused
			}
			return
		case ans.status == http.StatusCreated && l.outcome == unknown:
			l.accept(s.t, ans)
			if s.accepted.Add(1) == s.target {
				s.kill()
			}
			s.hand(l)
		case l.outcome == refused && (ans.status == http.StatusNotFound || ans.status == http.StatusUnprocessableEntity):
		default:
			s.t.Errorf("%s: status %d: %s", l.token, ans.status, ans.body)
			s.kill()
			return
		}
	}
}

// write makes the next letter: most with an Idempotency-Key, some without,
// and some that must be refused.
func (s *sender) write() *letter {
	n := len(s.letters)
	l := &letter{token: fmt.Sprintf("%s/%d", s.Address, n), keyed: n%5 != 4}
	l.to = s.recipients[rand.IntN(len(s.recipients))].Address
	key := l.token
	switch {
	case n%20 == 7:
		l.to, l.outcome = "nobody^crash", refused
	case n%20 == 13 && s.letters[n-1].outcome == accepted:
		key, l.outcome = s.letters[n-1].token, refused // with another body
	}
	size := rand.IntN(1000)
	if n%8 == 0 {
		size *= 50 // so that the log is copied back now and then
	}
	body := fmt.Sprintf(`{"to":%q,"payload":{"token":%q,"text":%q}}`, l.to, l.token, strings.Repeat("x", size))
	if l.keyed || l.outcome == refused {
		l.request = s.request("POST", "/api/v1/messages", body, "Idempotency-Key", key)
	} else {
		l.request = s.request("POST", "/api/v1/messages", body)
	}
	s.letters = append(s.letters, l)
	return l
}

func (l *letter) accept(t *testing.T, ans answer) {
	m := parse[record](t, ans.body)
	if l.id != "" && (l.id != m.MessageID || !l.createdAt.Equal(m.CreatedAt)) {
		t.Errorf("%s was %s at %v, and now is %s at %v", l.token, l.id, l.createdAt, m.MessageID, m.CreatedAt)
	}
	l.outcome, l.id, l.createdAt = accepted, m.MessageID, m.CreatedAt
}

// hand gives a letter to its recipient, unless that one has its hands full.
func (s *sender) hand(l *letter) {
	for _, r := range s.recipients {
		if r.Address == l.to {
			select {
			case r.mail <- l:
			default:
			}
		}
	}
}

// work acknowledges and delivers two of three letters until the server is gone.
func (r *recipient) work() {
	for n := 0; ; n++ {
		var l *letter
		select {
		case l = <-r.mail:
		case <-r.dead:
			return
		}
		if n%3 == 2 {
			continue
		}
		d := &deed{letter: l, status: [...]string{"completed", "", "failed", "processing"}[n%4]}
		path, body := "/api/v1/messages/"+l.id+"/deliver", ""
		if d.status != "" {
			path = "/api/v1/messages/" + l.id + "/ack"
			body = fmt.Sprintf(`{"status":%q,"client_ts":"2026-01-01T00:00:00Z"}`, d.status)
		}
		d.request = r.request("POST", path, body)
		r.deeds = append(r.deeds, d)
		ans, err := d.request.to(r.server.url)
		if err != nil {
			return
		}
		if ans.status != http.StatusOK {
			r.t.Errorf("%s: status %d: %s", path, ans.status, ans.body)
			r.kill()
			return
		}
		d.outcome = accepted
	}
}

// settle asks again for what was sent without an answer: by half as the very
// same request, by half signed anew. Without an Idempotency-Key the same
// request is safe to send again: if it was committed, its nonce is used.
func (s *sender) settle() {
	for i, l := range s.letters {
		if l.outcome != unknown {
			continue
		}
		again := l.request
		if l.keyed && i%2 == 0 {
			again = s.request("POST", l.request.path, l.request.body, "Idempotency-Key", l.request.header.Get("Idempotency-Key"))
		}
		ans, err := again.to(s.server.url)
		l.retried = true
		switch {
		case err != nil:
			s.t.Errorf("%s: %v", l.token, err)
		case ans.status == http.StatusCreated:
			l.accept(s.t, ans)
			if ans.header.Get("Idempotent-Replayed") == "true" {
				s.committed.Add(1)
			} else {
				s.fresh.Add(1)
			}
		case !l.keyed && ans.code() == "nonce_reused":
			l.outcome = accepted
			s.committed.Add(1)
		default:
			s.t.Errorf("retry of %s: status %d: %s", l.token, ans.status, ans.body)
		}
	}
	s.replay(s.letters[max(0, len(s.letters)-10):])
}

func (r *recipient) settle() {
	for _, d := range r.deeds {
		if d.outcome != unknown {
			continue
		}
		ans, err := d.request.to(r.server.url)
		if err != nil || ans.status != http.StatusOK && ans.code() != "nonce_reused" {
			r.t.Errorf("retry of %s: %v, %s", d.request.path, err, ans.body)
			return
		}
		d.outcome = accepted
	}
	r.replay(r.deeds[max(0, len(r.deeds)-10):])
}

// replay is what somebody does who has captured requests that were answered.
func (s *sender) replay(letters []*letter) {
	for _, l := range letters {
		if l.outcome != accepted {
			continue
		}
		ans, err := l.request.to(s.server.url)
		switch {
		case err != nil:
			s.t.Errorf("%s: %v", l.token, err)
		case !l.keyed && ans.code() == "nonce_reused" && ans.status == http.StatusUnauthorized:
		case l.keyed && ans.status == http.StatusCreated && ans.header.Get("Idempotent-Replayed") == "true":
			l.accept(s.t, ans)
		default:
			s.t.Errorf("replay of %s: status %d: %s", l.token, ans.status, ans.body)
		}
	}
}

func (r *recipient) replay(deeds []*deed) {
	for _, d := range deeds {
		ans, err := d.request.to(r.server.url)
		if err != nil || ans.status != http.StatusUnauthorized || ans.code() != "nonce_reused" {
			r.t.Errorf("replay of %s: %v, status %d: %s", d.request.path, err, ans.status, ans.body)
			return
		}
	}
}

// replayEverything settles the last round, then replays all rounds.
func (c *crash) replayEverything() {
	c.each((*sender).settle, (*recipient).settle)
	c.each(func(s *sender) { s.replay(s.letters) }, func(r *recipient) { r.replay(r.deeds) })
}

// catchUp lets the listeners hear the rest, and compares it with the histories.
func (c *crash) catchUp() {
	c.each(func(*sender) {}, func(r *recipient) {
		var want []string
		for _, m := range c.server.history(r.agent, "direction=in") {
			want = append(want, m.MessageID)
		}
		r.listen(func() bool { return len(r.heard) >= len(want) })
		for i := range max(len(want), len(r.heard)) {
			if i >= len(want) || i >= len(r.heard) || want[i] != r.heard[i] {
				c.t.Errorf("%s heard %d messages, its history has %d, and they differ from number %d on", r.Address, len(r.heard), len(want), i)
				return
			}
		}
	})
}

// compare reads every history and holds it against what was answered.
func (c *crash) compare() {
	var all []record
	found := map[string]record{}
	for _, r := range c.recipients {
		h := c.server.history(r.agent, "direction=in&include=payload")[1:] // but for the cursor
		c.wantOrder(r.Address, h)
		pending := 1
		for _, m := range h {
			var p struct{ Token string }
			json.Unmarshal(m.Payload, &p) // an empty token is found below
			if before, twice := found[p.Token]; twice {
				c.t.Errorf("%s is there twice: %s and %s", p.Token, before.MessageID, m.MessageID)
			}
			found[p.Token] = m
			if m.State != "acknowledged" {
				pending++
			}
		}
		inbox := parse[struct{ Pending int }](c.t, c.server.ask(r.agent, "GET", "/api/v1/mecha/"+r.Address+"/inbox", "").want(c.t, 200))
		if inbox.Pending != pending {
			c.t.Errorf("%s: inbox counts %d pending, history has %d", r.Address, inbox.Pending, pending)
		}
		all = append(all, h...)
	}
	slices.SortFunc(all, func(a, b record) int { return strings.Compare(a.MessageID, b.MessageID) })
	c.wantOrder("all", all)
	total := 0
	for _, s := range c.senders {
		total += c.compareSender(s, found)
	}
	if total != len(all) {
		c.t.Errorf("%d messages were accepted, but histories have %d", total, len(all))
	}
	for _, r := range c.recipients {
		c.compareDeeds(r, found)
	}
}

func (c *crash) wantOrder(whose string, h []record) {
	for i := 1; i < len(h); i++ {
		if h[i].MessageID <= h[i-1].MessageID {
			c.t.Errorf("%s: %s stands after %s", whose, h[i].MessageID, h[i-1].MessageID)
		}
		if h[i].CreatedAt.Before(h[i-1].CreatedAt) {
			c.t.Errorf("%s: created_at goes back from %v to %v", whose, h[i-1].CreatedAt, h[i].CreatedAt)
		}
	}
}

// compareSender gives how many messages the sender knows to be accepted.
func (c *crash) compareSender(s *sender, found map[string]record) (n int) {
	own := c.server.history(s.agent, "direction=out")
	c.wantOrder(s.Address, own)
	last := ""
	for _, l := range s.letters {
		m, there := found[l.token]
		if there != (l.outcome == accepted) {
			c.t.Errorf("%s: outcome %d, in history: %v", l.token, l.outcome, there)
		}
		if l.outcome != accepted {
			continue
		}
		n++
		if l.id != "" && l.id != m.MessageID || l.id != "" && !l.createdAt.Equal(m.CreatedAt) || m.To != l.to || m.From != s.Address || !m.Signed {
			c.t.Errorf("%s was answered as %s at %v to %s, and is %+v", l.token, l.id, l.createdAt, l.to, m)
		}
		if !strings.Contains(l.request.body, `"payload":`+string(m.Payload)) {
			c.t.Errorf("%s: the payload is %s", l.token, m.Payload)
		}
		if !l.retried {
			if m.MessageID <= last {
				c.t.Errorf("%s was sent after the 201 of %s, and stands before it", m.MessageID, last)
			}
			last = m.MessageID
		}
	}
	if len(own) != n {
		c.t.Errorf("%s was told of %d accepted messages, its history has %d", s.Address, n, len(own))
	}
	return n
}

func (c *crash) compareDeeds(r *recipient, found map[string]record) {
	for _, d := range r.deeds {
		m := found[d.letter.token]
		state := "acknowledged"
		if d.status == "" || d.status == "processing" {
			state = "delivered"
		}
		if m.State != state || d.status != "" && (m.Ack == nil || m.Ack.Status != d.status) {
			c.t.Errorf("%s was answered as %s %s, and is %s %+v", m.MessageID, state, d.status, m.State, m.Ack)
		}
	}
}

func (c *crash) report(rounds int) {
	var messages, refusals, deeds, heard int
	for _, s := range c.senders {
		for _, l := range s.letters {
			if l.outcome == refused {
				refusals++
			} else {
				messages++
			}
		}
	}
	for _, r := range c.recipients {
		deeds += len(r.deeds)
		heard += len(r.heard) - 1
	}
	c.t.Logf("%d kills, %d messages, of which %d had no answer and were there, %d had none and were not; %d refused; %d acknowledged or delivered; %d pushed",
		rounds, messages, c.committed.Load(), c.fresh.Load(), refusals, deeds, heard)
}
