package retention

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"relay/db/internal/dictionary"
	"relay/db/internal/engine"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// ExpiredKeyStays is how long after its end an expired key may work again, if the clock
// is set back. After that it has ended for good.
const ExpiredKeyStays = 24 * time.Hour

// pruneUnused removes what removed messages have left behind. Whether a message refers
// to a word, a key or a Mecha needs no search: each has a position after which nothing
// refers to it, and is unused when that is older than the oldest message.
func (r *Retention) pruneUnused(t *engine.Tx, p *relay.PruneUnused) (out relay.PrunedUnused, err error) {
	out.More, err = r.sending.EndConversations(t, relay.MilliOf(p.EmptySince), p.Limit)
	if err != nil {
		return out, err
	}
	oldest, err := t.Oldest()
	if err != nil {
		return out, err
	}
	// Rows of clock_ahead stay while messages may have their times.
	err = t.C.Exec("DELETE FROM clock_ahead WHERE position IN (SELECT position FROM clock_ahead WHERE position < ? "+
		"ORDER BY position LIMIT ?)",
		int64(oldest-relay.Position(engine.AheadEvery.Milliseconds())<<relay.PositionBits), int64(p.Limit))
	if err != nil {
		return out, err
	}
	if err := r.replays.DropNonces(t, p.At); err != nil {
		return out, err
	}
	for _, f := range []func(*engine.Tx, *relay.PruneUnused, relay.Position, *relay.PrunedUnused) error{r.pruneWords,
		r.pruneKeys, r.pruneMechas} {
		if err := f(t, p, oldest, &out); err != nil {
			return out, err
		}
	}
	return out, nil
}

// An unusedRow is a row that a PruneUnused removes.
type unusedRow struct {
	id   int64
	text string
}

// unusedRows reads the rows of a query, each with its number, whether it is unused, and a text,
// and returns the unused ones. The next write continues after the number next. more says
// that there are further rows.
func (room *Retention) unusedRows(
	t *engine.Tx, limit int, after int64, query string, args ...any,
) (unused []unusedRow, next int64, more bool, err error) {
	r := t.C.Query(query, args...)
	n := 0
	for next = after; r.Next(); n++ {
		if next = r.Int(0); r.Int(1) != 0 {
			unused = append(unused, unusedRow{next, r.Text(2)})
		}
	}
	return unused, next, n == limit, r.Close()
}

// pruneWords removes words that no row has. A word may be the label of a conversation.
func (r *Retention) pruneWords(
	t *engine.Tx, p *relay.PruneUnused, oldest relay.Position, out *relay.PrunedUnused,
) error {
	unused, next, more, err := r.unusedRows(t, p.Limit, p.Words,
		`SELECT id, used < ? AND NOT EXISTS (SELECT 1 FROM participant WHERE conversation = -id)
		AND NOT EXISTS (SELECT 1 FROM dormant WHERE conversation = -id), text FROM word
		WHERE id > ? AND id < (SELECT max(id) FROM word) ORDER BY id LIMIT ?`,
		int64(oldest-dictionary.WordSlack), p.Words, int64(p.Limit))
	if err != nil {
		return err
	}
	for _, w := range unused {
		if err := r.dictionary.RemoveWord(t, w.id, w.text); err != nil {
			return err
		}
	}
	out.Words, out.More = next, out.More || more
	return nil
}

// endedBefore returns the time, in Unix ms, before which keys must have ended, and Mechas
// must have been removed, to be deleted, because people look for them for a while.
func endedBefore(p *relay.PruneUnused) int64 {
	return min(relay.MilliOf(p.EmptySince), p.At.Add(-ExpiredKeyStays).UnixMilli())
}

// pruneKeys notes which keys have expired, and removes ended ones to which no row refers.
func (r *Retention) pruneKeys(
	t *engine.Tx, p *relay.PruneUnused, oldest relay.Position, out *relay.PrunedUnused,
) error {
	newest, err := t.Newest()
	if err != nil {
		return err
	}
	changed := t.C.Changes()
	err = t.C.Exec(`UPDATE mecha_key SET ended = ? WHERE id IN (SELECT id FROM mecha_key WHERE id > ? ORDER BY id LIMIT ?)
		AND ended IS NULL AND (expires_at < ? OR revoked_at IS NOT NULL)`,
		int64(newest), p.Keys, int64(p.Limit), p.At.Add(-ExpiredKeyStays).UnixMilli())
	if err != nil {
		return err
	}
	unused, next, more, err := r.unusedRows(t, p.Limit, p.Keys,
		`SELECT id, ended IS NOT NULL AND ended < ? AND coalesce(revoked_at, expires_at) < ?, '' FROM mecha_key
		WHERE id > ? AND id < (SELECT max(id) FROM mecha_key) ORDER BY id LIMIT ?`,
		int64(oldest), endedBefore(p), p.Keys, int64(p.Limit))
	if err != nil {
		return err
	}
	for _, k := range unused {
		for _, q := range []string{"DELETE FROM key_use WHERE key = ?", "DELETE FROM mecha_key WHERE id = ?"} {
			if err := t.C.Exec(q, k.id); err != nil {
				return err
			}
		}
	}
	out.Keys, out.More = next, out.More || more
	if t.C.Changes() == changed {
		return nil
	}
	return r.directory.RaiseKeysVersion(t)
}

// pruneMechas removes Mechas that were removed from the directory, when no key, no
// message and no dormant conversation refers to them. Their rows in `participant` are
// deleted with the conversations.
func (r *Retention) pruneMechas(
	t *engine.Tx, p *relay.PruneUnused, oldest relay.Position, out *relay.PrunedUnused,
) error {
	unused, next, more, err := r.unusedRows(t, p.Limit, p.Mechas, `SELECT id, removed_at < ?4 AND revision < ?1
		AND NOT EXISTS (SELECT 1 FROM mecha_key WHERE mecha = m.id)
		AND NOT EXISTS (SELECT 1 FROM dormant WHERE conversation > 0 AND conversation < m.revision), address FROM mecha m
		WHERE id > ?2 AND id < (SELECT max(id) FROM mecha) ORDER BY id LIMIT ?3`,
		int64(oldest), p.Mechas, int64(p.Limit), endedBefore(p))
	if err != nil {
		return err
	}
	for _, m := range unused {
		id := relay.MechaNumber(m.id)
		if err := cmp.Or(r.answers.MechaGone(t, id), r.lessons.MechaGone(t, id)); err != nil {
			return err
		}
		for _, q := range []string{
			"UPDATE setting SET value = max(value, (SELECT revision FROM mecha WHERE id = ?)) WHERE name = 'last_position'",
			"DELETE FROM mecha WHERE id = ?",
		} {
			if err := t.C.Exec(q, m.id); err != nil {
				return err
			}
		}
		r.dictionary.Mechas[relay.Address(m.text)] = 0
	}
	upto := next
	if !more {
		upto = math.MaxInt64
	}
	if err := r.lessons.Prune(t, p.Mechas, upto, oldest, p.At); err != nil {
		return err
	}
	out.Mechas, out.More = next, out.More || more
	if len(unused) > 0 {
		t.Changed |= engine.EntriesChanged
	}
	return nil
}

func ErrChain(at, previous relay.Position) error {
	return fmt.Errorf("%w: the receipt at position %d follows %d", sqlite.ErrDamaged, at, previous)
}
