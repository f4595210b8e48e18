package db

import (
	"time"

	"relay/db/internal/dictionary"
	"relay/db/internal/engine"
	"relay/db/internal/mailbox"
	"relay/db/internal/replays"
	"relay/db/learning"
)

// nouns has the rooms by their names, for each other.
type nouns struct {
	*dictionary.Dictionary
	*mailbox.Mailbox
	*replays.Replays
	*directory
	*learning.Learning
	*messages
	*progress
	*sending
	*retention
}

// newRooms makes the rooms of a store. Later ones may use earlier ones.
func newRooms(w *engine.Store, o *Options) (n nouns, all []engine.Room) {
	n.Dictionary, n.Mailbox, n.Replays, n.directory = dictionary.New(w), mailbox.New(w), replays.New(w, o.MaxNonces, o.ClockSkew, o.passed), newDirectory(w)
	n.Learning, n.messages, n.progress, n.sending = learning.New(w, n.Dictionary, o.LearnHalfLife), &messages{w: w}, newProgress(w, o.MaxAttempts), &sending{w: w, members: newMembers(), limits: Limits{o.MaxPending, o.ConversationLimit, o.MaxBroadcast}}
	n.retention = newRetention(w, o.Retention, o.KeepExpired, func(now time.Time) time.Duration { return n.Replays.Used.Elapsed(now) })
	n.directory.dictionary, n.directory.lessons, n.directory.replays = n.Dictionary, n.Learning, n.Replays
	p := n.progress
	p.dictionary, p.directory, p.learning, p.mailbox = n.Dictionary, n.directory, n.Learning, n.Mailbox
	s := n.sending
	s.dictionary, s.directory, s.learning, s.mailbox, s.progress = n.Dictionary, n.directory, n.Learning, n.Mailbox, n.progress
	r := n.retention
	r.dictionary, r.directory, r.learning, r.mailbox = n.Dictionary, n.directory, n.Learning, n.Mailbox
	r.progress, r.replays, r.sending = n.progress, n.Replays, n.sending
	return n, []engine.Room{n.progress, n.Learning, n.Replays, n.Mailbox, n.Dictionary, n.sending, n.retention, n.directory}
}

// start has the writer and the rooms read their state from the file.
func (d *DB) start() error {
	if err := d.w.Start(); err != nil {
		return err
	}
	now := d.opts.Now()
	d.directory.keyUse.wrote = now
	starts := []func() error{d.progress.start, d.Learning.Start, d.sending.start}
	if d.opts.Serve {
		starts = append(starts, d.Mailbox.StartIndex, d.Dictionary.StartIndex,
			func() error { return d.retention.start(now) }, func() error { return d.Replays.Restore(now) })
	}
	for _, start := range starts {
		if err := start(); err != nil {
			return err
		}
	}
	return nil
}
