package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// An exchange is one request of a client, as the proxy saw it.
type exchange struct {
	at             time.Time // the whole request was there
	key            string
	method, target string // as in the request line
	path           string // target without its query
	nonce          string
	body           []byte
	before         int // how many with the same subject came before it

	status     int           // of the answer; 0: it got none, or not the whole
	retryAfter time.Duration // what the answer asks for; 0: nothing
	answered   time.Time     // when the answer was passed on
}

func newExchange(r *http.Request, body []byte) *exchange {
	path, _, _ := strings.Cut(r.RequestURI, "?")
	return &exchange{at: time.Now(), key: r.Header.Get("X-Mecha-Key"), method: r.Method, target: r.RequestURI, path: path,
		nonce: r.Header.Get("X-Nonce"), body: body}
}

const messagesPath = "/api/v1/messages"

func (e *exchange) isSend() bool { return e.method == http.MethodPost && e.path == messagesPath }

func (e *exchange) isAck() bool {
	return e.method == http.MethodPost && strings.HasPrefix(e.path, messagesPath+"/") && strings.HasSuffix(e.path, "/ack")
}

func (e *exchange) isHistory() bool {
	return e.method == http.MethodGet && strings.HasPrefix(e.path, "/api/v1/mecha/") &&
		strings.HasSuffix(e.path, "/messages")
}

// subject names what the request is about: a retry has the same, though its query, or the
// time in its body, may have changed.
func (e *exchange) subject() string {
	subject := e.method + " " + e.path
	if e.isSend() {
		var message struct{ Payload json.RawMessage }
		var b bytes.Buffer
		if json.Unmarshal(e.body, &message) == nil && json.Compact(&b, message.Payload) == nil {
			subject += " " + b.String()
		}
	}
	return subject
}

// early allows for the grain of clocks: a client that came back so much sooner has waited.
const early = 50 * time.Millisecond

// impatience tells of the first request that was repeated before the time that Retry-After had
// asked for.
func impatience(all []*exchange) (why []string) {
	for i, refused := range all {
		if refused.retryAfter == 0 || refused.answered.IsZero() {
			continue
		}
		for _, again := range all[i+1:] {
			waited := again.at.Sub(refused.answered)
			if again.key == refused.key && again.subject() == refused.subject() && waited >= 0 {
				if waited < refused.retryAfter-early {
					return []string{fmt.Sprintf("after a %d with Retry-After: %.0f, %s was repeated after %.2f s",
						refused.status, refused.retryAfter.Seconds(), refused.subject(), waited.Seconds())}
				}
				break
			}
		}
	}
	return nil
}

// reuse tells of the first nonce that came twice. HTTP libraries automatically repeat a request that got no
// answer, byte for byte: that is one request.
func reuse(all []*exchange) (why []string) {
	type use struct{ key, nonce string }
	seen := map[use]*exchange{}
	for _, e := range all {
		if e.nonce == "" {
			continue
		}
		first := seen[use{e.key, e.nonce}]
		if first == nil {
			seen[use{e.key, e.nonce}] = e
			continue
		}
		same := first.method == e.method && first.target == e.target && bytes.Equal(first.body, e.body)
		if !same || first.status != 0 {
			return []string{fmt.Sprintf("%s %s has the nonce of an earlier request (%s %s)",
				e.method, e.path, first.method, first.path)}
		}
		seen[use{e.key, e.nonce}] = e
	}
	return nil
}
