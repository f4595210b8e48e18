package retention

import (
	"fmt"
	"time"

	"relay/db/internal/engine"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// Start reads what an earlier process has left: rows to delete, and up to when it has
// trusted the clock.
func (r *Retention) Start(now time.Time) error {
	if !r.works() {
		return nil
	}
	if err := r.cleaner.Start(); err != nil {
		return err
	}
	ms, err := r.w.C.Number("SELECT value FROM setting WHERE name = 'clock'")
	if err != nil {
		return err
	}
	sure := relay.UnixMilli(ms)
	if sure.IsZero() && r.w.Last > 0 { // this is the first start that notes the clock
		sure = r.w.Last.Time()
	}
	r.clock.start(sure, r.running(now))
	return nil
}

// oldestOf returns the time of the first message of a pass, or zero.
func (r *Retention) oldestOf(p *pass) (oldest time.Time, err error) {
	query, at := "SELECT min(position) FROM message", func(n int64) time.Time { return relay.Position(n).Time() }
	if p.expired {
		query, at = "SELECT min(expires_at) FROM message INDEXED BY message_expired WHERE state = 3", relay.UnixMilli
	}
	_, err = r.w.C.Row(func(row *sqlite.Rows) {
		if !row.Null(0) {
			oldest = at(row.Int(0))
		}
	}, query)
	return oldest, err
}

// clockPiece notes in the file how far the clock has advanced, if the clock can be trusted.
func (r *Retention) clockPiece(now time.Time, running time.Duration) engine.Job {
	r.nextNote = running + noteClock
	if !r.clock.believes(now, running) {
		return nil
	}
	return r.localJobOf(noteOfClock(now.UnixMilli()), func() {})
}

type noteOfClock int64

func (n noteOfClock) Size() int { return 0 }

func (n noteOfClock) Apply(t *engine.Tx) error {
	return t.C.Exec("UPDATE setting SET value = ? WHERE name = 'clock'", int64(n))
}

// auditPiece notes in the audit log what was removed by age since the last such note. A
// command that had messages removed makes its own note.
func (r *Retention) auditPiece(now time.Time, running time.Duration) engine.Job {
	noted := r.toAudit
	act := &relay.Act{At: now, By: r.w.Opts.By, What: relay.ActMessagesPruned,
		Detail: fmt.Sprintf("%d messages by their age or expiry, with %d bytes of payload", noted.Messages, noted.Bytes)}
	return timed(r, act, func(_ any, err error) {
		defer r.settle()
		if r.pieceEnded(err) {
			r.nextAudit = running + auditEvery
			r.toAudit.Messages, r.toAudit.Bytes = r.toAudit.Messages-noted.Messages, r.toAudit.Bytes-noted.Bytes
		}
	})
}

// pushPiece deletes some rows of notes of pushes.
func (r *Retention) pushPiece() engine.Job {
	d := &dropPushes{before: r.pushes}
	return r.localJobOf(d, func() {
		if !d.more {
			r.pushes = 0
		}
	})
}

type dropPushes struct {
	before relay.Position
	more   bool // Apply sets it
}

const pushesAtOnce = 16 // rows, each of which may have thousands of notes

func (d *dropPushes) Size() int { return 0 }

func (d *dropPushes) Apply(t *engine.Tx) error {
	before := t.C.Changes()
	err := t.C.Exec("DELETE FROM push WHERE position IN (SELECT position FROM push WHERE position < ? "+
		"ORDER BY position LIMIT ?)", int64(d.before), int64(pushesAtOnce))
	d.more = t.C.Changes()-before == pushesAtOnce
	return err
}
