package retention

import (
	"time"

	"relay/db/internal/engine"
	"relay/db/relay"
)

// The end of the removal of messages, when the store closes.

// End has no further piece begin. Once the one that is on its way has ended, what was removed
// since the last note goes to the log, for the audit log; then settled is closed. It is for a
// store with a log that closes.
func (r *Retention) End(settled chan struct{}) {
	r.ending, r.settled = true, settled
	r.settle()
}

// settle continues what End has begun, once no piece is pending.
func (r *Retention) settle() {
	if r.settled == nil || r.proposed {
		return
	}
	settled := r.settled
	r.settled = nil
	if r.mustAudit() {
		r.proposes(r.auditPiece(r.w.Opts.Now(), 0))
	}
	close(settled)
}

// mustAudit reports whether something was removed that the audit log does not say.
func (r *Retention) mustAudit() bool {
	return r.toAudit.Messages > 0 && r.w.Opts.By != (relay.Actor{})
}

// Flush deletes the rows of removed messages when the store closes, and notes what was
// removed in the audit log, unless end has done that.
func (r *Retention) Flush() {
	can := func() bool { return r.works() && r.w.Failed() == nil && !r.w.Disk.Low.Load() }
	if can() && r.w.Log == nil && r.mustAudit() {
		r.w.Commit([]engine.QueuedJob{{Job: r.auditPiece(r.w.Opts.Now(), 0)}})
	}
	for can() && r.cleaner.Left() {
		r.goal = quietPiece
		r.w.Commit([]engine.QueuedJob{{Job: r.unlistPiece()}})
		if r.goal == 0 {
			return
		}
	}
}

// say logs what was removed, not more often than once a minute.
func (r *Retention) say() {
	if r.toSay.Messages > 0 && time.Since(r.said) >= sayEvery {
		r.w.Opts.Logger.Info("messages were removed", "messages", r.toSay.Messages, "payload_bytes", r.toSay.Bytes)
		r.toSay, r.said = relay.Pruned{}, time.Now()
	}
}
