package ws

import (
	"time"

	"relay/db/relay"
)

// A listener is a connection or a long-poll. The hub tells it of the messages of
// its Mecha, and is locked while it does, so no method may block.
type listener interface {
	// messageReceived brings a new message to the Mecha. shared has its frame if
	// the Mecha has several listeners, else it is nil.
	messageReceived(m *relay.Message, shared *sharedFrame)
	// messageSent says that the Mecha has sent a message.
	messageSent()
	// receivedChanged brings a change of a message to the Mecha.
	receivedChanged(*relay.Change)
	// sentChanged brings a change of a message that the Mecha has sent.
	sentChanged(*receipt)
	// end ends the listener: because of its key, by NotCurrent because the node does not know whether the key
	// is still valid, or nil because of the shutdown.
	end(reason error)

	// The key that it was opened with; a heldKey has these methods.
	mechaID() relay.MechaNumber
	keyID() relay.KeyID
	checkKey(now time.Time) error
	renewKey(*relay.Key)
}

// A watch is a long-poll. It only learns that there is news; HTTP then reads the
// history.
type watch struct {
	heldKey
	news  chan struct{}
	ended chan error
}

// Watch registers a long-poll of the key's Mecha, which counts as a socket.
// news yields when something has happened to a message that the Mecha has sent
// or received. ended yields once if the long-poll must end: with the reason, or
// nil at shutdown. The caller must call stop. Errors: TooManySockets,
// ShuttingDown, NotCurrent, KeyRevoked, KeyExpired.
func (h *Hub) Watch(key *relay.Key) (news <-chan struct{}, ended <-chan error, stop func(), err error) {
	w := newWatch(key)
	stop, err = h.startWatch(w, &w.heldKey)
	return w.news, w.ended, stop, err
}

func newWatch(key *relay.Key) *watch {
	return &watch{heldKey: heldKey{key: key}, news: make(chan struct{}, 1), ended: make(chan error, 1)}
}

// startWatch registers a listener that is not a connection, with its key. stop, which must follow,
// ends it; it is nil if there is an error.
func (h *Hub) startWatch(l listener, k *heldKey) (stop func(), err error) {
	if err := h.register(l); err != nil {
		return nil, err
	}
	defer h.wg.Done()
	if err := h.recheck(k); err != nil {
		h.unregister(l)
		return nil, err
	}
	return func() { h.unregister(l) }, nil
}

// notify says that there is news. If the long-poll has not yet taken up the
// last, it will find both.
func (w *watch) notify() {
	select {
	case w.news <- struct{}{}:
	default:
	}
}

func (w *watch) messageReceived(*relay.Message, *sharedFrame) { w.notify() }
func (w *watch) messageSent()                                 { w.notify() }
func (w *watch) receivedChanged(*relay.Change)                { w.notify() }
func (w *watch) sentChanged(*receipt)                         { w.notify() }

func (w *watch) end(reason error) {
	select {
	case w.ended <- reason:
	default: // it has been told before
	}
}
