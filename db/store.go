package db

import (
	"context"
	"time"

	"relay/db/file"
	"relay/db/internal/engine"
	"relay/db/internal/messages"
	"relay/db/look"
	"relay/db/relay"
)

// Measures returns the counts of this store.
func (d *DB) Measures() *engine.Measures { return d.w.Measures }

// Written returns how many writes and local writes the store has taken into transactions
// since it was opened.
func (d *DB) Written() uint64 { return uint64(d.w.Measures.Writes.Snapshot().Sum) }

// Queue returns how many writes and local writes wait for the writer, and for how long
// the oldest of the writes has waited.
func (d *DB) Queue() (length int, oldest time.Duration) {
	now := d.w.Opts.Now()
	if d.w.Log != nil {
		n, at := d.w.Log.Waiting()
		if length = n; n > 0 {
			oldest = max(now.Sub(at), 0)
		}
	}
	d.w.Mu.Lock()
	defer d.w.Mu.Unlock()
	for _, o := range d.w.Queue.Items() {
		if w := o.Job.Shared(); w != nil {
			oldest = max(now.Sub(w.When()), 0)
			break
		}
	}
	return length + len(d.w.Queue.Items()), oldest
}

// CheckWritable returns an error of the code DatabaseLocked while another process has
// held the write lock for more than a second, so that nothing can be written.
func (d *DB) CheckWritable() error {
	since := d.w.Watch.Locked.Load()
	if since == nil {
		return nil
	}
	e := relay.Errorf(relay.DatabaseLocked, "another process has held the write lock of the database since %s, "+
		"so nothing can be written; the relay's log names the process", relay.FormatTime(*since))
	e.RetryAfter = time.Second
	return e
}

// Act makes a write for an operator, who need not be Options.By, and notes it in the audit log,
// in the same transaction. It returns once that is durable, with the outcome of Apply. Errors: as
// of the method for that write.
func (d *DB) Act(by relay.Actor, write relay.Write) (outcome any, err error) {
	m, sends := write.(*relay.SendMessage)
	if sends {
		d.Decide(m)
	}
	if outcome, err = d.w.Act(by, write); sends {
		err = d.Suggest(err, m.To, m.Key)
	}
	return outcome, err
}

// Note adds a row to the audit log for an act that is not a write of its own, such as a
// compaction, and returns once that is durable. what is an act of package relay, detail
// is for people. It does nothing unless Options.By is set. Errors: those of every write.
// The writer's goroutine must not call it.
func (d *DB) Note(what, detail string) error {
	if d.w.Opts.By == (relay.Actor{}) {
		return nil
	}
	_, err := engine.Do[any](d.w, &relay.Act{At: d.w.Opts.Now(), By: d.w.Opts.By, What: what, Detail: detail})
	return err
}

// Apply queues a write of any kind, unchanged, and returns its outcome once it is durable:
// relay.Sent, AckOutcome, DeliveredOutcome, *Key for IssueKey, Pruned, PrunedUnused, the
// outcome of its own write for Act, nil for the other kinds. It is for complete writes,
// such as those that relay.ReadWrite reads. Send and similar methods first complete the
// writes of clients. The same writes in the same order make the same store. Errors: as of
// the method for that write.
func (d *DB) Apply(write relay.Write) (outcome any, err error) {
	ended := make(chan struct{})
	j, err := d.w.Table.JobOf(write, func(o any, failed error) {
		outcome, err = o, failed
		close(ended)
	})
	if err != nil {
		return nil, err
	}
	d.w.QueueFor(j)
	<-ended
	return outcome, err
}

// MayBeStale reports whether CheckFresh may ever refuse reads, since this is a node of a cluster.
func (d *DB) MayBeStale() bool { return d.w.Opts.Gate != nil }

// CheckFresh refuses a read with NotCurrent while this node of a log does not know what the
// others have written in the last two seconds: it might show what a revoked key may no longer
// see. Without a log it returns nil.
func (d *DB) CheckFresh() error { return d.w.CheckFresh() }

// Place returns the place of this copy in its log, as of the last commit. It is the zero Place
// if the file is its own log.
func (d *DB) Place() file.Place {
	if d.w.Log == nil {
		return file.Place{}
	}
	return d.w.Log.Place()
}

// UseNonce uses up, on all nodes, the nonce of a request that lets its sender write later (see
// relay.UseNonce). Without a log it does nothing, because Claim has already used it up.
// Errors: NonceReused, UnknownKey, KeyRevoked, KeyExpired, and those of every write.
func (d *DB) UseNonce(k *relay.Key, nonce relay.NonceHash) error {
	if d.w.Log == nil {
		return nil
	}
	_, err := engine.Do[engine.None](d.w, &relay.UseNonce{At: d.w.Opts.Now(), Key: k.Number, Nonce: nonce})
	return err
}

// Trace returns the life of a message to a party of it, as Inspector.Trace does, and the situation
// for relay.Decide (PROTOCOL §3, Trace). looked is how many rows were read for it. Errors:
// NotAParty, MessageNotFound; NotCurrent; RateLimited, if too many reads of the Mecha wait.
func (d *DB) Trace(ctx context.Context, caller relay.Mecha, id relay.MessageID) (t *look.Trace, looked int, err error) {
	if err := d.w.AwaitMessage(ctx, id); err != nil {
		return nil, 0, err
	}
	t, looked, err = look.ReadTrace(ctx, d.w.As(caller.Number), id, messages.AsParty(caller.Number), look.PushRows)
	if err != nil {
		return nil, looked, err
	}
	seen, visible, err := d.Presence(ctx, caller, t.Message.Recipient)
	t.Situation.LastSeen, t.Situation.Hidden = seen, !visible
	if !visible {
		look.HidePushes(t)
	}
	return t, looked, err
}
