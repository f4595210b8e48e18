package retention

import (
	"log/slog"
	"time"

	"relay/db/relay"
)

// A wrong clock must not remove every message. So the removal trusts the clock only as
// far as it has seen it advance: by the time that passes, and over a restart by a time
// that the file keeps. After a jump nothing is removed for a while, so that people can
// correct the clock. A machine that has slept, or was off, is indistinguishable from a
// wrong clock; so the while is short compared to the jump.
const (
	jumpRunning = time.Minute      // by how much the clock may advance faster than running time
	jumpStopped = 30 * time.Minute // likewise between the last note in the file and a start
	doubtShare  = 8                // the clock is in doubt for this part of its jump
	MaxDoubt    = 12 * time.Hour
	noteClock   = 10 * time.Minute // how often the time is noted in the file
)

// clockGuard decides whether the clock can be trusted. Its fields are times of the clock, and
// durations in the running time, which setting the clock does not change.
type clockGuard struct {
	log     *slog.Logger
	sure    time.Time // when the clock was last trusted, or zero
	at      time.Duration
	allowed time.Duration // by how much the clock may be ahead now
	doubted time.Time     // the clock when it jumped; zero while it is trusted
	since   time.Duration
	until   time.Duration
	by      time.Duration // by how much it jumped
	said    bool          // the jump is logged
}

// start takes the time noted in the file.
func (t *clockGuard) start(sure time.Time, running time.Duration) {
	t.sure, t.at, t.allowed = sure, running, jumpStopped
}

// believes reports whether the clock, which shows now, can be trusted.
func (t *clockGuard) believes(now time.Time, running time.Duration) bool {
	ahead := time.Duration(0)
	if !t.sure.IsZero() {
		ahead = now.Sub(t.sure) - (running - t.at)
	}
	switch {
	case ahead <= t.allowed:
		if t.said {
			t.log.Info("the clock is as expected again: messages are removed by it")
		}
	case t.doubted.IsZero() || (now.Sub(t.doubted)-(running-t.since)).Abs() > jumpRunning:
		t.doubted, t.since, t.by, t.said = now, running, ahead, false
		t.until = running + min(ahead/doubtShare, MaxDoubt)
		return false
	case running < t.until:
		return false
	case t.said:
		t.log.Warn("the clock has not been set back: messages are removed by it", "clock", relay.FormatTime(now))
	}
	t.sure, t.at, t.allowed, t.doubted, t.said = now, running, jumpRunning, time.Time{}, false
	return true
}

// refuse logs, once, that due messages are not removed because the clock is in doubt.
func (t *clockGuard) refuse(now time.Time, running time.Duration) {
	if t.said {
		return
	}
	t.said = true
	t.log.Warn("the clock is ahead of what the store has seen of it: no message is removed by its age for a while, "+
		"in case the clock is wrong",
		"by", t.by.Round(time.Second), "until", relay.FormatTime(now.Add(t.until-running)))
}
