package learning

import (
	"context"
	"maps"
	"slices"
	"time"

	"relay/db/internal/dictionary"
	"relay/db/internal/engine"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// Discovery learns like this (PROTOCOL §5, Learning): SaveSearch stores the words of a search and the
// listed Mechas (found_sql.go). A message that names the search gets the words (message.sought). Its
// final acknowledgement makes an exchange, which costs next to nothing (exchange_sql.go). The room
// counts many exchanges together (count_sql.go), into `learned` and `learner`. The search index
// follows learner.position.

// Ended notes a final acknowledgement of a message. p is the position of its receipt, sought
// the words of the search that found the recipient, or "". No Mecha counts for itself.
func (room *Learning) Ended(t *engine.Tx, a *relay.Acknowledge, m *relay.Message, sought string, p relay.Position) {
	if sought == "" || !a.Learns || m.Sender == m.Recipient {
		return
	}
	l := room
	l.counts.expect(a.At)
	l.brought = append(l.brought, exchange{m.Recipient, p, m.Sender, a.Status == relay.Completed, hourOf(a.At), sought})
}

// putLearner writes the row of a Mecha. Its position is p, or the next one if another
// process has used later ones: the search index must not miss this change.
func (room *Learning) putLearner(t *engine.Tx, id relay.MechaNumber, l learner, p relay.Position) error {
	t.Changed |= engine.LearnedChanged
	_, err := t.C.Row(func(r *sqlite.Rows) { t.Last = max(t.Last, relay.Position(r.Int(0))) },
		`INSERT OR REPLACE INTO learner (mecha, position, exchanges, hour, words, off)
			VALUES (?1, max(?2, coalesce((SELECT max(position) + 1 FROM learner), 0)), ?3, ?4, ?5, ?6) RETURNING position`,
		int64(id), int64(p), l.exchanges, l.hour, l.known, l.off)
	return err
}

// forgetLearned removes what was learned about a Mecha, and what waits to be learned. off is
// the new setting of its profile.
func (l *Learning) forgetLearned(t *engine.Tx, id relay.MechaNumber, off bool, at time.Time) error {
	if err := l.dropExchanges(t, id, false); err != nil {
		return err
	}
	known, err := t.C.Row(nil, "SELECT 1 FROM learner WHERE mecha = ?", int64(id))
	if err != nil || !known && !off {
		return err
	}
	err = t.Erasing(func() error { return t.C.Exec("DELETE FROM learned WHERE mecha = ?", int64(id)) })
	if err != nil {
		return err
	}
	return l.putLearner(t, id, learner{off: off}, t.Position(at))
}

// MechaRemoved removes the learned words of a Mecha, and its exchanges that wait to be counted for
// others, since its address will be gone.
func (l *Learning) MechaRemoved(t *engine.Tx, id relay.MechaNumber, at time.Time) error {
	if err := l.forgetLearned(t, id, false, at); err != nil {
		return err
	}
	return l.dropExchanges(t, id, true)
}

// ProfilePut notes what a new profile says about learning.
func (l *Learning) ProfilePut(t *engine.Tx, id relay.MechaNumber, off bool, at time.Time) error {
	if off {
		return l.forgetLearned(t, id, true, at)
	}
	return t.C.Exec("UPDATE learner SET off = 0 WHERE mecha = ? AND off = 1", int64(id))
}

// MechaGone removes the row of a Mecha that nothing refers to.
func (l *Learning) MechaGone(t *engine.Tx, id relay.MechaNumber) error {
	return t.C.Exec("DELETE FROM learner WHERE mecha = ?", int64(id))
}

// Prune removes the learned words of Mechas in a range of numbers, if their last exchange
// is older than every message. at is the time of the write.
func (l *Learning) Prune(t *engine.Tx, after, upto int64, oldest relay.Position, at time.Time) error {
	old := map[relay.MechaNumber]bool{} // with the settings of their profiles
	r := t.C.Query("SELECT mecha, off FROM learner WHERE mecha > ? AND mecha <= ? AND words > 0 AND hour < ? "+
		"ORDER BY mecha", after, upto, hourOf(oldest.Time()))
	for r.Next() {
		old[relay.MechaNumber(r.Int(0))] = r.Int(1) != 0
	}
	if err := r.Close(); err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(old)) {
		if err := l.forgetLearned(t, id, old[id], at); err != nil {
			return err
		}
	}
	return nil
}

// ForgetLearned removes what discovery has learned about a Mecha, and returns once that is
// durable (PROTOCOL §5, Learning). Errors: MechaNotFound, and those of every write. Any
// goroutine may call it.
func (l *Learning) ForgetLearned(f *relay.ForgetLearned) error {
	_, err := engine.Administer[engine.None](l.w, f)
	return err
}

func (room *Learning) forget(t *engine.Tx, f *relay.ForgetLearned) (engine.None, error) {
	id, err := room.dictionary.Mecha(t, f.Address)
	if err == nil && id == 0 {
		err = dictionary.NotFound(f.Address)
	}
	if err != nil {
		return engine.None{}, err
	}
	l, err := room.learner(t, id)
	if err != nil {
		return engine.None{}, err
	}
	return engine.None{}, room.forgetLearned(t, id, l.off, f.At)
}

// learnedAtOnce is roughly how many words one read of Learned returns.
const learnedAtOnce = 20_000

// Learned returns up to limit Mechas whose counts have changed after a position, each with all
// its words, in the order of the positions. It may return fewer, but returns none only if
// there are no more. A store that does not learn has none. The search index follows by it,
// woken by OnEntries. Any goroutine may call it.
func (l *Learning) Learned(ctx context.Context, after relay.Position, limit int) ([]relay.Learned, error) {
	if l.halfLife == 0 {
		return nil, nil
	}
	return engine.Get(ctx, l.w.As(0).Scan, func(x *engine.Rx) ([]relay.Learned, error) {
		return learned(x, after, limit, l.halfLife)
	})
}

func learned(x *engine.Rx, after relay.Position, limit int, halfLife time.Duration) (all []relay.Learned, err error) {
	words := int64(0)
	r := x.C.Query("SELECT mecha, position, exchanges, hour, words FROM learner WHERE position > ? "+
		"ORDER BY position LIMIT ?", int64(after), int64(limit))
	for words < learnedAtOnce && r.Next() {
		all = append(all, relay.Learned{Mecha: relay.MechaNumber(r.Int(0)), Position: relay.Position(r.Int(1)),
			Exchanges: inExchanges(r.Int(2)), At: timeOfHour(r.Int(3))})
		words += r.Int(4)
	}
	if err := r.Close(); err != nil {
		return nil, err
	}
	for i := range all {
		words, err := wordsOf(x, all[i].Mecha)
		if err != nil {
			return nil, err
		}
		for _, w := range words {
			hour := w.shares.last()
			weight, crews := w.shares.weight(hour, halfLife)
			all[i].Words = append(all[i].Words, relay.LearnedWord{Word: w.word, Weight: inExchanges(weight),
				At: timeOfHour(hour), Crews: crews})
		}
	}
	return all, nil
}

func inExchanges(n int64) float64 { return float64(n) / relay.LearnedUnit }
