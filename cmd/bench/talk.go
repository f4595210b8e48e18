package bench

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"

	"relay/http/client"
)

// Messages as agents send them. A pair of Mechas has a conversation of 2 to 20 messages,
// in turn. In one half of the conversations every message carries a label that the
// client has chosen; in the other half every message but the first names the one before
// (in_reply_to). All carry a correlation id, of which a question and its answer share
// one. Many conversations are under way at once, and a Mecha is the more often written
// to, the more popular it is. A tenth of the Mechas listen on a socket.
const (
	openConversations    = 20_000 // on all connections together
	shortestConversation = 2      // messages
	longestConversation  = 20

	// The Mecha of rank k begins to be written to in proportion to (1+k)^-popularity.
	popularity = 1.1
	// Of ten Mechas in order of their popularity, this one listens. So the listeners get
	// about a tenth of the messages.
	listenerOfTen = 5

	// A payload has smallestPayload bytes and a number of further ones that is exponentially
	// distributed. The mean is Config.Payload, and the maximum is largestPayload times that.
	smallestPayload = 64
	largestPayload  = 16
)

// A talk sends the messages of its conversations, one at a time. It belongs to one worker.
type talk struct {
	mechas  []*mecha
	payload int // bytes, on average
	worker  int
	workers int
	random  *rand.Rand
	ranks   *rand.Zipf
	open    []*conversation
	begun   int    // conversations so far
	filler  []byte // of the largest payload
	body    []byte
}

// A conversation is one between two Mechas.
type conversation struct {
	asker, other *mecha
	label        string // "": the messages name the one before
	correlation  string // without the number of the exchange
	last         string // the id of its last message
	sent, all    int    // messages
}

// talk makes the conversations of a worker, the same in every round. The worker begins
// them for Mechas of its own: those whose number is worker modulo workers.
func (b *bench) talk(mechas []*mecha, worker, workers int) *talk {
	t := &talk{mechas: mechas, payload: b.Payload, worker: worker, workers: workers}
	t.random = rand.New(rand.NewPCG(1, uint64(worker)))
	t.ranks = rand.NewZipf(t.random, popularity, 1, uint64(len(mechas)-1))
	t.open = make([]*conversation, max(openConversations/workers, 1))
	t.filler = make([]byte, b.Payload*largestPayload)
	for i := range t.filler {
		t.filler[i] = 'x'
	}
	return t
}

// send sends the next message of one of the conversations.
func (t *talk) send(c *conn) (done, error) {
	i := t.random.IntN(len(t.open))
	v := t.open[i]
	if v == nil {
		v = t.next()
		t.open[i] = v
	}
	from, to := v.asker, v.other
	if v.sent%2 == 1 {
		from, to = to, from
	}
	t.body = t.appendMessage(t.body[:0], v, to)
	answer, err := c.do(from, "POST", sendPath, t.body, http.StatusCreated)
	if err != nil {
		t.open[i] = nil
		return done{}, err
	}
	if v.accepted(answer); v.sent == v.all {
		t.open[i] = nil
	}
	return done{units: 1}, nil
}

// accepted counts a message by the relay's answer to it.
func (v *conversation) accepted(answer []byte) {
	v.sent++
	if v.label == "" {
		v.last = string(textField(answer, "message_id"))
	}
}

// next makes the next conversation of this worker's Mechas.
func (t *talk) next() *conversation {
	asker := (t.worker + t.begun*t.workers) % len(t.mechas)
	other := int(t.ranks.Uint64())
	if other == asker {
		other = (other + 1) % len(t.mechas)
	}
	return t.begin(t.mechas[asker], t.mechas[other])
}

func (t *talk) begin(asker, other *mecha) *conversation {
	t.begun++
	name := strconv.Itoa(t.worker) + "-" + strconv.Itoa(t.begun)
	v := &conversation{asker: asker, other: other, correlation: "request-" + name + "-",
		all: shortestConversation + t.random.IntN(longestConversation-shortestConversation+1)}
	if t.begun%2 == 0 {
		v.label = "trip-" + name
	}
	return v
}

// appendMessage appends the body of a conversation's next message to b.
func (t *talk) appendMessage(b []byte, v *conversation, to *mecha) []byte {
	b = append(append(append(b, `{"to":"`...), to.address...), `","correlation_id":"`...)
	b = strconv.AppendInt(append(b, v.correlation...), int64(v.sent/2), 10)
	switch {
	case v.label != "":
		b = append(append(b, `","conversation_id":"`...), v.label...)
	case v.last != "":
		b = append(append(b, `","in_reply_to":"`...), v.last...)
	}
	b = append(b, `","payload":{"text":"`...)
	b = append(b, t.filler[:t.size()]...)
	return append(b, `"}}`...)
}

// size draws how many bytes the text of the next payload has.
func (t *talk) size() int {
	const frame = len(`{"text":""}`)
	least := min(smallestPayload, t.payload)
	drawn := least + int(t.random.ExpFloat64()*float64(t.payload-least))
	return max(min(drawn, len(t.filler))-frame, 0)
}

// talkRound is one round, in which n connections send the messages of conversations.
// Unless the server is lean, a tenth of the Mechas listen.
func (b *bench) talkRound(ctx context.Context, s *server, what string, n int) (*sample, error) {
	l := b.links(ctx, s)
	var listeners sync.WaitGroup
	defer listeners.Wait()
	defer l.close() // which ends the listeners
	for i := listenerOfTen; i < len(s.mechas) && !s.lean; i += 10 {
		in, err := l.listen(s.mechas[i], "sync_limit=0")
		if err != nil {
			return nil, err
		}
		listeners.Go(func() { drain(in) })
	}
	return b.runOn(ctx, s, what, n, func(i int, c *conn) operation {
		t := b.talk(s.mechas, i, n)
		return func() (done, error) { return t.send(c) }
	})
}

// drain reads frames until the socket ends.
func drain(s *client.Socket) {
	for {
		if _, err := s.Next(); err != nil {
			return
		}
	}
}
