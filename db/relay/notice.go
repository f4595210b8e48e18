package relay

import "time"

// NoteOverdue is the write that notifies the senders of pending messages whose AckBy has
// come at At: at most 500 messages, the earliest first. A server makes it when one is
// due.
type NoteOverdue struct{ At time.Time }

func (o *NoteOverdue) When() time.Time { return o.At }

func (o *NoteOverdue) setTime(at time.Time) { o.At = at }

func (o *NoteOverdue) Size() int { return 0 }

func (o *NoteOverdue) kind() byte     { return kindNoteOverdue }
func (o *NoteOverdue) fields(f *form) { f.time(&o.At) }

// NoteFull is the write that notifies the founder of a conversation that the conversation
// is full. A server makes it after it has refused a message for that. Only the first one
// for a conversation has an effect.
type NoteFull struct {
	At           time.Time
	Key          KeyNumber // of the sender who was refused: the write takes its turns
	Conversation int64     // the number of the conversation in the store
}

func (n *NoteFull) When() time.Time { return n.At }

func (n *NoteFull) setTime(at time.Time) { n.At = at }

func (n *NoteFull) Size() int { return 128 }

func (n *NoteFull) kind() byte { return kindNoteFull }

func (n *NoteFull) fields(f *form) {
	f.time(&n.At)
	integer(f, &n.Key)
	f.int64(&n.Conversation)
}
