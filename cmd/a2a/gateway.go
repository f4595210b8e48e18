// Package a2a is a gateway to a relay for clients of the Agent2Agent protocol (A2A), version 1.0,
// in its JSON-RPC binding: a client reaches a Mecha by it, even an offline one.
//
// The gateway is a Mecha of its own. A client's message becomes a message from it, and a task is
// that message: its id is the message id, its context is the conversation, and its state follows
// from the acknowledgements and answers. So a task is read from the relay each time, and the
// gateway is stateless: another process continues where one was killed.
//
// thread.go says what messages mean as a task, parts.go how parts travel; methods.go has the
// methods. The tests hold every result against the data model of the specification.
package a2a

import (
	"cmp"
	"context"
	"sync"
	"time"

	"relay/db/relay"
	"relay/http/client"
)

// Config says who the gateway is, and for whom it opens.
type Config struct {
	Client *client.Client // of the gateway's own Mecha
	Own    relay.Address  // of that Mecha
	// Offer are the Mechas that clients reach. Empty: those that the directory shows to Own.
	Offer []relay.Address
	// URL is where clients reach the gateway, without a slash at the end. The cards have it.
	URL string
	// Token must be shown by clients, as a Bearer token. Empty: none is needed.
	Token string
	// Local says that only this machine reaches the gateway. Requests must then name it as
	// localhost, by a loopback address or as the host of URL, so that no page on the web can
	// reach it by a name of its own.
	Local bool
	// Timeout is how long a request is tried again if the relay is away or overloaded.
	Timeout time.Duration
	// Wait is how long SendMessage waits for the end of a task, at most.
	Wait time.Duration
	// LookAgain is after how long a request that waits for a task looks at it again although
	// the relay has told nothing. Default: 5 s.
	LookAgain time.Duration
	// TTL is after how long a message expires that nobody has acknowledged; 0: never.
	TTL time.Duration
	// Report is called with what happens to the connections to the relay, also concurrently.
	Report func(client.Event)
}

// Gateway answers the requests of A2A clients. Run must be running meanwhile. Its methods may
// be called concurrently.
type Gateway struct {
	Config
	token   [32]byte // SHA-256
	large   places   // of bodies above smallBody that are arriving
	calls   places   // of calls that are answered at once
	waits   places   // of calls that wait for a task
	bells   bells
	offered offered
	near    int             // nearMessages
	life    context.Context // ends when Run ends: nobody waits any more
	end     context.CancelFunc
}

const lookAgain = 5 * time.Second

// How many places there are. A call takes one when its body is there, so a client that sends none of
// it holds up nobody; and calls that wait leave the others theirs. Cards need no place.
const (
	maxLarge = 32
	maxCalls = 64
	maxWaits = 256
)

// places bounds how many requests do something at once.
type places chan struct{}

// take takes a place, and reports whether there was one. give must follow.
func (p places) take() bool {
	select {
	case p <- struct{}{}:
		return true
	default:
		return false
	}
}

func (p places) give() { <-p }

// New makes a gateway.
func New(c Config) *Gateway {
	c.LookAgain = cmp.Or(c.LookAgain, lookAgain)
	d := &Gateway{Config: c, token: digest(c.Token), near: nearMessages,
		large: make(places, maxLarge), calls: make(places, maxCalls), waits: make(places, maxWaits)}
	d.life, d.end = context.WithCancel(context.Background())
	return d
}

// Run receives what Mechas answer, until ctx ends; then it returns nil. Requests that wait are then
// answered at once. The error is client.Listen's, as when the key is revoked.
func (d *Gateway) Run(ctx context.Context) error {
	defer d.end()
	ctx, stop := context.WithCancel(ctx)
	var receipts sync.WaitGroup
	receipts.Go(func() { d.receiveReceipts(ctx) })
	defer receipts.Wait()
	defer stop()
	return d.Client.Listen(ctx, client.ListenOptions{Quick: true, MaxReplies: -1, Report: d.Report}, d.receive)
}

// receive takes a message for the gateway's own Mecha. Answers stay at the relay, where the
// tasks are read; to acknowledge them only empties the mailbox.
func (d *Gateway) receive(ctx context.Context, m *client.Message) error {
	if m.InReplyTo == "" && m.CorrelationID == "" {
		return m.Ack(ctx, "rejected",
			string(d.Own)+" is a gateway for A2A clients: it takes answers to their messages, and no messages")
	}
	d.bells.ring(m.ConversationID, m.InReplyTo)
	return nil
}

const receiptsPause = 10 * time.Second // between attempts, at most

// receiveReceipts notices acknowledgements at once, by a socket. Without one, a wait looks
// again after Config.LookAgain.
func (d *Gateway) receiveReceipts(ctx context.Context) {
	for b := (client.Backoff{Most: receiptsPause}); ctx.Err() == nil; {
		err := d.readReceipts(ctx, &b)
		client.Sleep(ctx, b.Pause(err))
	}
}

func (d *Gateway) readReceipts(ctx context.Context, b *client.Backoff) error {
	socket, err := d.Client.Dial(ctx, d.Own, "sync_limit=0&events=receipts")
	if err != nil {
		return err
	}
	defer socket.Close()
	b.Reset()
	d.bells.ringAll() // something may have happened before
	for {
		var f struct {
			MessageID string `json:"message_id"`
		}
		if err := socket.Receive(&f); err != nil {
			return err
		}
		d.bells.ring("", f.MessageID)
	}
}

// bells tell requests that wait for a task to look again. The zero value has none.
type bells struct {
	mu  sync.Mutex
	all map[*bell]bool
}

// bell rings when something happens in a conversation, or to a message.
type bell struct {
	of           *bells
	rung         chan struct{} // has one value if it has rung since it was read
	conversation string
	messages     map[string]bool
}

// hang adds a bell for a task. remove must follow.
func (b *bells) hang(id, conversation string) *bell {
	one := &bell{of: b, rung: make(chan struct{}, 1), conversation: conversation, messages: map[string]bool{id: true}}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all == nil {
		b.all = map[*bell]bool{}
	}
	b.all[one] = true
	return one
}

// tie adds the messages of the task to those by which the bell rings.
func (one *bell) tie(t *thread) {
	one.of.mu.Lock()
	defer one.of.mu.Unlock()
	for _, r := range t.records {
		one.messages[r.MessageID] = true
	}
}

func (one *bell) remove() {
	one.of.mu.Lock()
	defer one.of.mu.Unlock()
	delete(one.of.all, one)
}

func (b *bells) ring(conversation, message string) {
	b.ringIf(func(one *bell) bool {
		return one.messages[message] || conversation != "" && one.conversation == conversation
	})
}

func (b *bells) ringAll() { b.ringIf(func(*bell) bool { return true }) }

func (b *bells) ringIf(so func(*bell) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for one := range b.all {
		if so(one) {
			select {
			case one.rung <- struct{}{}:
			default: // it has rung
			}
		}
	}
}
