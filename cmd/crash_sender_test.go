package cmd_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// letter is one message that a sender tried to send.
type letter struct {
	token     string // is in the payload, and in no other
	by        agent
	to        string
	request   request // the first attempt
	keyed     bool    // it has an Idempotency-Key
	outcome   outcome
	id        string // "" though accepted: the retry said that it had been committed
	createdAt time.Time
	retried   bool

	conversation string // the sender's own word for it; "": none
	question     string // the id of the message that it answers; "": none
}

type outcome int

const (
	unknown outcome = iota
	accepted
	refused
	absent // its nonce was used, but it was not committed
)

type sender struct {
	*crash
	agent
	letters []*letter
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
	l := &letter{token: fmt.Sprintf("%s/%d", s.Address, n), by: s.agent, keyed: n%5 != 4}
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
	body := fmt.Sprintf(`{"to":%q,"payload":{"token":%q,"text":"%s"}%s}`, l.to, l.token, strings.Repeat("x", size), s.place(l))
	if l.keyed || l.outcome == refused {
		l.request = s.request("POST", "/api/v1/messages", body, "Idempotency-Key", key)
	} else {
		l.request = s.request("POST", "/api/v1/messages", body)
	}
	s.letters = append(s.letters, l)
	return l
}

// place puts a letter into one of a few conversations of the sender, or makes it an answer to
// one of the letters before it, or neither.
func (s *sender) place(l *letter) string {
	n := len(s.letters)
	switch n % 3 {
	case 0:
		l.conversation = fmt.Sprintf("%s-%d", strings.ReplaceAll(s.Address, "^", "."), n%4)
		return fmt.Sprintf(`,"conversation_id":%q`, l.conversation)
	case 1:
		for _, q := range slices.Backward(s.letters) {
			if q.id != "" {
				l.question = q.id
				return fmt.Sprintf(`,"in_reply_to":%q`, q.id)
			}
		}
	}
	return ""
}

func (l *letter) accept(t *testing.T, ans answer) {
	m := parse[record](t, ans.body)
	if l.id != "" && (l.id != m.MessageID || !l.createdAt.Equal(m.CreatedAt)) {
		t.Errorf("%s was %s at %v, and now is %s at %v", l.token, l.id, l.createdAt, m.MessageID, m.CreatedAt)
	}
	l.outcome, l.id, l.createdAt = accepted, m.MessageID, m.CreatedAt
}

// hand returns a letter to its recipient, unless that one has its hands full.
func (s *sender) hand(l *letter) {
	if len(s.letters)%8 == 0 {
		s.beat(l)
	}
	for _, r := range s.recipients {
		if r.Address == l.to {
			select {
			case r.mail <- l:
			default:
			}
		}
	}
}

// resolve sends again each letter that had no answer: one half as the very same
// request, the other half signed again. The same request is safe to send again: if the
// relay has accepted it, its nonce is used, whether or not it was committed. With an
// Idempotency-Key it is then signed again.
func (s *sender) resolve() {
	for i, l := range s.letters {
		if l.outcome != unknown {
			continue
		}
		again := l.request
		if l.keyed && i%2 == 0 {
			again = s.request("POST", l.request.path, l.request.body, "Idempotency-Key", l.request.header.Get("Idempotency-Key"))
		}
		ans, err := again.to(s.server.url)
		if err == nil && l.keyed && ans.code() == "nonce_reused" {
			again = s.request("POST", l.request.path, l.request.body, "Idempotency-Key", l.request.header.Get("Idempotency-Key"))
			ans, err = again.to(s.server.url)
		}
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
		case !l.keyed && ans.code() == "nonce_reused": // whether it was committed remains unknown
		default:
			s.t.Errorf("retry of %s: status %d: %s", l.token, ans.status, ans.body)
		}
	}
	s.replay(s.letters[max(0, len(s.letters)-10):])
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
