package ws

import "relay/db/relay"

// A replyWatch waits for the reply to one message. It gets the reply from the commit
// itself: however busy the Mecha is, nothing is read from the store for it.
type replyWatch struct {
	*watch
	question *relay.Message
	reply    chan *relay.Message
}

// WatchReply registers a wait for the reply to a message that the key's Mecha has sent. It counts as a socket,
// like Watch. reply yields the first reply that is committed from now on, with its payload; one that was
// committed before is in the store. ended and stop, and the errors, are Watch's.
func (h *Hub) WatchReply(
	key *relay.Key, question *relay.Message,
) (reply <-chan *relay.Message, ended <-chan error, stop func(), err error) {
	w := &replyWatch{watch: newWatch(key), question: question, reply: make(chan *relay.Message, 1)}
	stop, err = h.startWatch(w, &w.heldKey)
	return w.reply, w.ended, stop, err
}

func (w *replyWatch) messageReceived(m *relay.Message, _ *sharedFrame) {
	if !m.IsReplyTo(w.question) {
		return
	}
	select {
	case w.reply <- m:
	default: // it has an earlier one
	}
}

func (w *replyWatch) messageSent()                  {}
func (w *replyWatch) receivedChanged(*relay.Change) {}
func (w *replyWatch) sentChanged(*receipt)          {}
