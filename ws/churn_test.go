package ws_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"relay/db/relay"
	"relay/db/scratch"
)

// Connections come and end in every way next to listeners that stay, while messages
// are sent. Nothing is lost, doubled, out of order, or given to another Mecha.
func TestChurnDisturbsNoListener(t *testing.T) {
	t.Parallel()
	withAndWithoutTLS(t, churn)
}

func churn(t *testing.T, r *testRelay) {
	const listeners, churners = 2, 4 // of each recipient
	messages, cycles := scratch.Amount(t, 50, 5000), scratch.Amount(t, 32, 1250)
	alice := r.mustIssue("alice^test")
	var senders, all sync.WaitGroup
	for i := range 2 {
		to := r.mustIssue(relay.Address(fmt.Sprintf("to%d^test", i)))
		quiet := r.mustIssue(relay.Address(fmt.Sprintf("quiet%d^test", i))) // gets no messages, since the endings expect none
		for range listeners {
			c := r.mustDial(to, "sync_limit=0")
			all.Go(func() {
				got := c.listenUntilLast(to.Mecha.Address)
				if !t.Failed() {
					expectSame(t, got, r.received(to))
				}
			})
		}
		var next atomic.Int64
		var churning sync.WaitGroup
		f := r.in(forgetful{t})
		for range churners {
			churning.Go(func() {
				for n := int(next.Add(1)); n <= cycles && !t.Failed(); n = int(next.Add(1)) {
					if n%2 == 0 {
						f.ackAndBreakOff(to)
					} else {
						endings[n/2%len(endings)].run(f, quiet)
					}
				}
			})
		}
		senders.Go(func() { r.mustSendMany(alice, to.Mecha.Address, messages) })
		all.Go(func() {
			churning.Wait()
			senders.Wait()
			r.mustSend(alice, to.Mecha.Address, `{"n":"last"}`) // also after a failure: it ends the listeners
		})
	}
	all.Wait()
}

// listenUntilLast reads and acknowledges messages, until the last one has come.
func (c *client) listenUntilLast(own relay.Address) (got []relay.MessageID) {
	for {
		f, err := c.next()
		if err != nil || f.Type != "message" || f.To != own {
			c.t.Errorf("%s got %+v, %v after %d messages", own, f, err, len(got))
			return got
		}
		got = append(got, f.MessageID)
		if f.payload(c.t) == `{"n":"last"}` {
			return got
		}
		c.ack(f.MessageID, "received")
	}
}

// ackAndBreakOff reads what comes until a message of its own, sends acks without
// waiting, one of them in two parts, and resets the connection in the middle of a frame.
func (r *testRelay) ackAndBreakOff(k relay.IssuedKey) {
	c := r.mustUpgrade(k, "sync_limit=0")
	id := r.mustSend(k, k.Mecha.Address, `{"n":"own"}`)
	for text := ""; !strings.Contains(text, string(id)); {
		op, payload, err := c.frame()
		if err != nil || op == opText && !strings.Contains(payload, `"to":"`+string(k.Mecha.Address)+`"`) {
			r.t.Errorf("%s got %x %s, %v", k.Mecha.Address, op, payload, err)
			return
		}
		text = payload
	}
	ack := masked(fin|opText, strings.Replace(ackOf(string(id)), "completed", "received", 1))
	c.mustWrite(strings.Repeat(ack, 5), ack[:20])
	c.mustWrite(ack[20:], ack[:30])
	c.reset()
}
