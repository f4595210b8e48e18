package db

import (
	"relay/db/internal/answers"
	"relay/db/internal/dictionary"
	"relay/db/internal/directory"
	"relay/db/internal/engine"
	"relay/db/internal/lessons"
	"relay/db/internal/mailbox"
	"relay/db/internal/messages"
	"relay/db/internal/progress"
	"relay/db/internal/replays"
	"relay/db/internal/retention"
	"relay/db/internal/sending"
)

// nouns holds the rooms by name, so that rooms can use each other.
type nouns struct {
	*dictionary.Dictionary
	*mailbox.Mailbox
	*replays.Replays
	*directory.Directory
	*answers.Answers
	*messages.Messages
	*progress.Progress
	*sending.Sending
	*retention.Retention
	lessons lessons.Lessons
}

// newRooms makes the rooms of a store. Later ones may use earlier ones.
func newRooms(w *engine.Store, o *Options) (n nouns, all []engine.Room) {
	n.Dictionary, n.Mailbox = dictionary.New(w), mailbox.New(w)
	n.Replays = replays.New(w, o.MaxNonces, o.ClockSkew, o.passed)
	n.lessons = o.Lessons(w, n.Dictionary)
	n.Answers = answers.New(w, n.lessons)
	n.Directory = directory.New(w, n.Dictionary, n.Replays, n.lessons)
	n.Messages = messages.New(w)
	n.Progress = progress.New(w, n.Dictionary, n.Directory, n.Mailbox, n.lessons, o.MaxAttempts)
	limits := sending.Limits{MaxPending: o.MaxPending, ConversationLimit: o.ConversationLimit,
		MaxBroadcast: o.MaxBroadcast}
	n.Sending = sending.New(w, limits, n.Dictionary, n.Directory, n.Mailbox, n.Progress, n.lessons)
	n.Retention = retention.New(w, o.Retention, o.KeepExpired, n.Dictionary, n.Directory, n.Mailbox,
		n.Replays, n.Progress, n.Sending, n.Answers, n.lessons)
	return n, []engine.Room{n.Progress, n.lessons, n.Answers, n.Replays, n.Mailbox, n.Dictionary, n.Sending, n.Retention,
		n.Directory}
}

// start has the writer and the rooms read their state from the file.
func (d *DB) start() error {
	if err := d.w.Start(); err != nil {
		return err
	}
	now := d.opts.Now()
	d.Directory.Start()
	starts := []func() error{d.Progress.Start, d.lessons.Start, d.Sending.Start}
	if d.opts.Serve {
		starts = append(starts, d.Mailbox.StartIndex, d.Dictionary.StartIndex,
			func() error { return d.Retention.Start(now) }, func() error { return d.Replays.Restore(now) })
	}
	for _, start := range starts {
		if err := start(); err != nil {
			return err
		}
	}
	return nil
}
