// Package sending is the room that decides sends: who may write to whom, who takes part in a
// conversation and how long it may get, to whom a message to a crew goes, and the rows of a message.
//
// Send completes a client's message and queues it; the write then makes its checks in the order of
// the calls in send. A refused write changes nothing.
package sending

import (
	"relay/db/cache"
	"relay/db/internal/dictionary"
	"relay/db/internal/directory"
	"relay/db/internal/engine"
	"relay/db/internal/mailbox"
	"relay/db/internal/names"
	"relay/db/internal/progress"
	"relay/db/relay"
)

// Limits bound what may be sent. 0 means no limit, except in MaxBroadcast.
type Limits struct {
	MaxPending        int // pending messages of one recipient
	ConversationLimit int // messages of a conversation whose founder has set no limit
	MaxBroadcast      int // maximum number of recipients of a message to a crew; 0 disables such messages
}

// Lessons knows the searches that messages name.
type Lessons interface {
	// Sought returns the words of the search that a message names, if it may name it.
	Sought(m *relay.SendMessage) []string
}

// Sending is the room that decides sends.
type Sending struct {
	engine.Quiet
	w          *engine.Store
	limits     Limits
	dictionary *dictionary.Dictionary
	directory  *directory.Directory
	lessons    Lessons
	mailbox    *mailbox.Mailbox
	progress   *progress.Progress
	members    members
	limited    bool        // a conversation may have a limit
	to         []addressee // the recipients of the present message
	broadcasts int         // messages to a crew in the present transaction
}

// New makes the room.
func New(
	w *engine.Store, limits Limits, words *dictionary.Dictionary, d *directory.Directory, m *mailbox.Mailbox,
	p *progress.Progress, l Lessons,
) *Sending {
	return &Sending{w: w, limits: limits, dictionary: words, directory: d, mailbox: m, progress: p, lessons: l,
		members: members{cache.New[int64, [2]relay.MechaNumber](names.CacheBytes)}}
}

func (s *Sending) Start() (err error) {
	s.limited, err = s.w.C.Row(nil, "SELECT 1 FROM conversation_limit LIMIT 1")
	return err
}

func (s *Sending) Begin(*engine.Tx)       { s.broadcasts = 0 }
func (s *Sending) AfterCommit(*engine.Tx) { s.w.Measures.ToCrews.Add(int64(s.broadcasts)) }
func (s *Sending) Forget()                { s.members.Forget() }

func (s *Sending) Kinds(all *engine.Table) {
	engine.Add(all, engine.Kind[*relay.SendMessage, relay.Sent]{Decide: s.send, Note: noteSent,
		By: func(m *relay.SendMessage) (relay.KeyNumber, relay.NonceHash) { return m.Key, m.Nonce }})
	engine.Add(all, engine.Kind[*relay.NoteFull, engine.None]{Decide: s.noteFull, Silent: true,
		By: func(f *relay.NoteFull) (relay.KeyNumber, relay.NonceHash) { return f.Key, 0 }})
}

func noteSent(m *relay.SendMessage, sent relay.Sent, n *relay.NotedAct) bool {
	n.What, n.Mecha, n.Detail = relay.ActMessageSent, m.To, string(sent.ID)
	if m.CorrelationID != "" {
		n.Detail += ", correlation id " + relay.Quote(m.CorrelationID)
	}
	return !sent.Replayed
}
