package http_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"relay/db/relay"
)

func (m mecha) sendOnce(key, body string, changes ...change) reply {
	m.r.t.Helper()
	return m.post(messages, body, append(changes, idempotent(key))...)
}

// wantReplay expects the stored 201 of first. The recipient is described as it is now.
func (a reply) wantReplay(first reply) {
	a.t.Helper()
	a.want(201)
	got, _, _ := strings.Cut(string(a.body), `"recipient"`)
	want, _, _ := strings.Cut(string(first.body), `"recipient"`)
	if got != want || a.header.Get("Idempotent-Replayed") != "true" {
		a.t.Errorf("want a replay of %s, got %s %v", first.body, a.body, a.header)
	}
}

func TestARetryGetsTheFirstAnswer(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
	first := alice.sendOnce("order 17", letter(bob)).want(201)
	if first.header.Get("Idempotent-Replayed") != "" {
		t.Error("the first answer is no replay")
	}
	r.clock.advance(time.Minute)
	alice.sendOnce("order 17", letter(bob)).wantReplay(first)
	alice.sendOnce("order 17", letter(bob), unsigned).wantReplay(first)
	r.mustIssue("alice^demo").sendOnce("order 17", letter(bob)).wantReplay(first) // per sender, not per key
	alice.sendOnce("order 17", letter(bob)+" ").wantProblem(422, relay.IdempotencyKeyReused)
	alice.sendOnce("order 17", letter(bob)).wantReplay(first)

	for _, other := range []reply{bob.sendOnce("order 17", letter(bob)), alice.sendOnce("ORDER 17", letter(bob)), alice.post(messages, letter(bob))} {
		if other.want(201); other.field("message_id") == first.field("message_id") || other.header.Get("Idempotent-Replayed") != "" {
			t.Errorf("%s is a message of its own", other.body)
		}
	}
	r.wantMessages(4)
}

// It is looked up before the body is checked, and after who asks.
func TestAReusedKeyIsSaidFirst(t *testing.T) {
	t.Parallel()
	r := mustServe(t, func(s *settings) { s.api.MaxBody = 1000 })
	alice := r.mustIssue("alice^demo")
	alice.sendOnce("k", letter(alice)).want(201)
	for _, body := range []string{"", "{", "[]", `{"to":5}`, `{"from":"bob^demo","to":"nobody^demo","payload":{}}`} {
		alice.sendOnce("k", body).wantProblem(422, relay.IdempotencyKeyReused)
	}
	alice.sendOnce("k", strings.Repeat("x", 1001)).wantProblem(413, relay.PayloadTooLarge)
	alice.sendOnce("k", letter(alice), signedBy("mk_wrong")).wantProblem(401, relay.InvalidSignature)
}

func TestOnly201IsKept(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice := r.mustIssue("alice^demo")
	to := `{"to":"bob^demo","payload":{}}`
	alice.sendOnce("k", to).wantProblem(404, relay.RecipientNotFound)
	alice.sendOnce("k", "{").wantProblem(400, relay.InvalidJSON)
	r.mustIssue("bob^demo")
	alice.sendOnce("k", to).want(201)
	alice.sendOnce("k", "{").wantProblem(422, relay.IdempotencyKeyReused)
	r.wantMessages(1)
}

func TestIdempotencyKeyForms(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice := r.mustIssue("alice^demo")
	for i, key := range []string{"k", strings.Repeat("k", 128), `!"#$%&'()*+,-./:;<=>?@[\]^_{|}~`, "a b"} {
		first := alice.sendOnce(key, letter(alice)).want(201)
		alice.sendOnce(key, letter(alice)).wantReplay(first)
		r.wantMessages(i + 1)
	}
	for _, c := range []change{
		with("Idempotency-Key", ""), with("Idempotency-Key", strings.Repeat("k", 129)), with("Idempotency-Key", "clé"),
		with("Idempotency-Key", "a\tb"), with("Idempotency-Key", "a", "a"),
	} {
		alice.post(messages, letter(alice), c).wantProblem(400, relay.InvalidIdempotencyKey)
	}
	r.wantMessages(4)
	alice.get(whoami, with("Idempotency-Key", "")).want(200) // it means nothing elsewhere
}

func TestKeptForADayOverRestarts(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice := r.mustIssue("alice^demo")
	c := alice.prepare("POST", messages, letter(alice), idempotent("k"))
	first := r.mustDo(c).want(201)
	for _, again := range []func(*testRelay){(*testRelay).mustRestart, (*testRelay).mustCrash} {
		again(r)
		alice.r = r
		r.mustDo(c).wantReplay(first) // with its old nonce, which the store remembers
		alice.sendOnce("k", letter(alice)).wantReplay(first)
		alice.sendOnce("k", letter(alice)+" ").wantProblem(422, relay.IdempotencyKeyReused)
	}
	r.clock.advance(24*time.Hour - time.Second)
	alice.sendOnce("k", letter(alice)).wantReplay(first)
	r.clock.advance(2 * time.Second)
	if a := alice.sendOnce("k", letter(alice)+" ").want(201); a.field("message_id") == first.field("message_id") {
		t.Error("kept for more than a day")
	}
	r.wantMessages(2)
}

// HTTP libraries resend a request with an Idempotency-Key on their own, nonce and all.
func TestTheSameRequestAgain(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
	c := alice.prepare("POST", messages, letter(bob), idempotent("k"))
	first := r.mustDo(c).want(201)
	r.mustDo(c).wantReplay(first)
	r.clock.advance(5 * time.Minute)
	r.mustDo(c).wantReplay(first)
	r.clock.advance(time.Second)
	r.mustDo(c).wantProblem(401, relay.TimestampOutOfRange)

	// Nothing else passes with a used nonce.
	c = alice.prepare("POST", messages, letter(bob), idempotent("k2"))
	r.mustDo(c).want(201)
	alice.sendOnce("k2", letter(bob)+" ", nonce(c.nonce)).wantProblem(401, relay.NonceReused)
	alice.sendOnce("k3", letter(bob), nonce(c.nonce)).wantProblem(401, relay.NonceReused)
	alice.post(messages, letter(bob), nonce(c.nonce)).wantProblem(401, relay.NonceReused)
	alice.post(messagePath("msg_x")+"/ack", letter(bob), nonce(c.nonce), idempotent("k2")).wantProblem(401, relay.NonceReused)

	// A refused request left no 201.
	c = alice.prepare("POST", messages, `{`, idempotent("k4"))
	r.mustDo(c).wantProblem(400, relay.InvalidJSON)
	r.mustDo(c).wantProblem(401, relay.NonceReused)
	c = alice.prepare("POST", messages, `{"to":"carol^demo","payload":{}}`, idempotent("k5"))
	r.mustDo(c).wantProblem(404, relay.RecipientNotFound)
	r.mustIssue("carol^demo")
	r.mustDo(c).wantProblem(401, relay.NonceReused)
	r.wantMessages(2)
}

func TestConcurrentDuplicatesMakeOneMessage(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
	const n = 24
	for _, sameNonce := range []bool{false, true} {
		before := r.countMessages()
		calls := make([]*call, n)
		for i := range calls {
			calls[i] = alice.prepare("POST", messages, letter(bob, `"correlation_id":"x"`), idempotent(fmt.Sprint("k", before)))
			if sameNonce {
				calls[i].nonce = calls[0].nonce
			}
		}
		replies := make([]reply, n)
		var wg sync.WaitGroup
		for i, c := range calls {
			wg.Go(func() {
				var err error
				if replies[i], err = r.try(c); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		first := slices.IndexFunc(replies, func(a reply) bool { return a.header.Get("Idempotent-Replayed") == "" })
		if first < 0 {
			t.Fatal("nobody got the first answer")
		}
		for i, a := range replies {
			if i != first {
				a.wantReplay(replies[first])
			}
		}
		r.wantMessages(before + 1)
	}
}
