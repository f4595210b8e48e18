package retention

import (
	"time"

	"relay/db/internal/engine"
	"relay/db/relay"
)

// The end of the removal of messages, when the store closes.

// End begins no further piece. Once the pending piece has ended, it sends the removals since
// the last note to the log, for the audit log, and then closes settled. It is for a closing
// store with a log.
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

// mustAudit reports whether removals are missing from the audit log.
func (r *Retention) mustAudit() bool {
	return r.toAudit.Messages > 0 && r.w.Opts.By != (relay.Actor{})
}

// Flush deletes the rows of removed messages when the store closes, and notes what was
// removed in the audit log, unless End has done that.
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

// say logs removals, at most once a minute.
func (r *Retention) say() {
	if r.toSay.Messages > 0 && time.Since(r.said) >= sayEvery {
		r.w.Opts.Logger.Info("messages were removed", "messages", r.toSay.Messages, "payload_bytes", r.toSay.Bytes)
		r.toSay, r.said = relay.Pruned{}, time.Now()
	}
}
