package directory

import (
	"cmp"
	"context"
	"encoding/json"
	"math"
	"slices"
	"time"

	"relay/db/internal/dictionary"
	"relay/db/internal/engine"
	"relay/db/internal/mailbox"
	"relay/db/internal/names"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// raiseRevision sets a Mecha's revision to the next one, so that the search index reads it
// again. removed is the time of its removal in Unix ms, or nil.
func (d *Directory) raiseRevision(t *engine.Tx, id relay.MechaNumber, at time.Time, removed any) error {
	t.Changed |= engine.EntriesChanged
	// max, because another process may have used later revisions, and the index must not
	// miss this one.
	_, err := t.C.Row(func(r *sqlite.Rows) { t.Last = max(t.Last, relay.Position(r.Int(0))) },
		"UPDATE mecha SET revision = max(?1, (SELECT max(revision) + 1 FROM mecha)), removed_at = ?2 "+
			"WHERE id = ?3 RETURNING revision",
		int64(t.Position(at)), removed, int64(id))
	return err
}

// PutProfile replaces a profile, and returns once that is durable (PROTOCOL §5, Profile).
// Errors: MechaNotFound; with Register, InvalidAddress; and those of every write. Any
// goroutine may call it.
func (d *Directory) PutProfile(p *relay.PutProfile) error {
	put := engine.Do[engine.None, *relay.PutProfile]
	if p.Key == 0 { // a command sets it; a Mecha that sets its own is not an operator
		put = engine.Administer[engine.None, *relay.PutProfile]
	}
	_, err := put(d.w, p)
	return err
}

// PutProfileThen is PutProfile without waiting, for imports, which note themselves in the
// audit log (DB.Note). The writer's goroutine calls done, which must not block.
func (d *Directory) PutProfileThen(p *relay.PutProfile, done func(error)) {
	engine.Then(d.w, p, func(_ engine.None, err error) { done(err) })
}

func (d *Directory) putProfile(t *engine.Tx, p *relay.PutProfile) (engine.None, error) {
	if p.Key != 0 {
		if _, err := d.Caller(t, p.Key); err != nil {
			return engine.None{}, err
		}
	}
	id, err := d.dictionary.Mecha(t, p.Address)
	if p.Register {
		id, err = d.register(t, p.Address, p.At)
	} else if err == nil && id == 0 {
		err = dictionary.NotFound(p.Address)
	}
	if err != nil {
		return engine.None{}, err
	}
	body := string(p.Profile.Body)
	if body == "" {
		body = "{}"
	}
	d.accepts.Drop(id)
	err = t.C.Exec(`INSERT INTO profile (mecha, body, card, visibility, created_at, updated_at, accept_from)
		VALUES (?1, ?2, ?3, ?4, ?5, ?5, ?6) ON CONFLICT (mecha) DO UPDATE SET body = ?2, card = ?3, visibility = ?4,
		updated_at = ?5, accept_from = ?6`,
		int64(id), body, sqlite.OrNull(string(p.Profile.Card)), p.Profile.Visibility.Number(), p.At.UnixMilli(),
		sqlite.OrNull(string(p.Profile.AcceptFrom)))
	if err != nil {
		return engine.None{}, err
	}
	if err := d.lessons.ProfilePut(t, id, p.Profile.NoLearn, p.At); err != nil {
		return engine.None{}, err
	}
	if err := d.replays.KeepNonce(t, p.Nonce, p.At); err != nil {
		return engine.None{}, err
	}
	return engine.None{}, d.raiseRevision(t, id, p.At, nil)
}

// RemoveMecha removes a Mecha, and returns once that is durable. Errors: MechaNotFound,
// and those of every write. Any goroutine may call it.
func (d *Directory) RemoveMecha(r *relay.RemoveMecha) error {
	_, err := engine.Administer[engine.None](d.w, r)
	return err
}

func (d *Directory) removeMecha(t *engine.Tx, r *relay.RemoveMecha) (engine.None, error) {
	id, err := d.dictionary.Mecha(t, r.Address)
	if err != nil {
		return engine.None{}, err
	}
	if id == 0 {
		return engine.None{}, dictionary.NotFound(r.Address)
	}
	d.dictionary.Mechas[r.Address] = 0 // later jobs of this transaction must not find it
	newest, err := t.Newest()
	if err != nil {
		return engine.None{}, err
	}
	err = t.C.Exec("UPDATE mecha_key SET revoked_at = ?1, ended = coalesce(ended, ?2) "+
		"WHERE mecha = ?3 AND revoked_at IS NULL", r.At.UnixMilli(), int64(newest), int64(id))
	if err != nil {
		return engine.None{}, err
	}
	d.accepts.Drop(id)
	if err := t.C.Exec("DELETE FROM profile WHERE mecha = ?", int64(id)); err != nil {
		return engine.None{}, err
	}
	if err := d.lessons.MechaRemoved(t, id, r.At); err != nil {
		return engine.None{}, err
	}
	if err := d.RaiseKeysVersion(t); err != nil {
		return engine.None{}, err
	}
	if err := mustHaveNoLiveKey(t, "mecha", int64(id)); err != nil {
		return engine.None{}, err
	}
	return engine.None{}, d.raiseRevision(t, id, r.At, r.At.UnixMilli())
}

const entryColumns = `SELECT m.id, m.address, m.created_at, m.revision, m.removed_at, p.body, p.card, p.updated_at
	FROM mecha m LEFT JOIN profile p ON p.mecha = m.id `

// scanEntry makes the entry of the present row, with its card if card is set.
func scanEntry(r *sqlite.Rows, card bool) (relay.Entry, error) {
	e := relay.Entry{
		Mecha: relay.Mecha{Number: relay.MechaNumber(r.Int(0)), Address: relay.Address(r.Text(1)),
			CreatedAt: relay.UnixMilli(r.Int(2))},
		Revision: r.Int(3), Removed: !r.Null(4), UpdatedAt: relay.UnixMilli(r.Int(7)),
	}
	if e.UpdatedAt.IsZero() {
		e.UpdatedAt = e.CreatedAt
	}
	e.Visibility = relay.Public
	if r.Null(5) || e.Removed {
		return e, nil
	}
	err := json.Unmarshal([]byte(r.Text(5)), &e.Profile)
	if card && !r.Null(6) {
		e.Card = json.RawMessage(r.Text(6))
	}
	if e.Visibility == "" {
		e.Visibility = relay.Public
	}
	return e, err
}

func Entries(x *engine.Rx, card bool, where string, args ...any) ([]relay.Entry, error) {
	all, _, err := engine.Page(x.C.Query(entryColumns+where, args...), math.MaxInt,
		func(r *sqlite.Rows) (relay.Entry, error) { return scanEntry(r, card) })
	return all, err
}

// EntriesAfter returns up to limit Mechas whose revision is greater than revision, by
// revision, with removed ones and without cards. The search index follows the directory
// by this method.
func (d *Directory) EntriesAfter(ctx context.Context, revision int64, limit int) ([]relay.Entry, error) {
	return engine.Get(ctx, d.w.As(0).Scan, func(x *engine.Rx) ([]relay.Entry, error) {
		return Entries(x, false, "WHERE m.revision > ? ORDER BY m.revision LIMIT ?", revision, int64(limit))
	})
}

// Entries reads the Mechas with these ids for a caller, without their cards. Removed and
// unknown ones are left out. Callers share the entries' contents, so nobody may change them.
// Any goroutine may call it.
func (d *Directory) Entries(
	ctx context.Context, caller relay.MechaNumber, ids []relay.MechaNumber,
) (all []relay.Entry, err error) {
	list := mailbox.JSONList(ids, func(id relay.MechaNumber) int64 { return int64(id) })
	err = d.w.As(caller).Point(ctx, func(x *engine.Rx) error {
		all = make([]relay.Entry, 0, len(ids))
		var unknown []int // places in all
		r := x.C.Query("SELECT m.id, m.revision FROM json_each(?) j CROSS JOIN mecha m ON m.id = j.value "+
			"WHERE m.removed_at IS NULL", list)
		for r.Next() {
			id := relay.MechaNumber(r.Int(0))
			e, ok := d.entries.Find(id)
			if !ok || e.Revision != r.Int(1) {
				e, unknown = relay.Entry{Mecha: relay.Mecha{Number: id}}, append(unknown, len(all))
			}
			all = append(all, e)
		}
		if err := r.Close(); err != nil {
			return err
		}
		for _, i := range unknown {
			if err := d.remember(x, &all[i]); err != nil {
				return err
			}
		}
		all = slices.DeleteFunc(all, func(e relay.Entry) bool { return e.Removed }) // between the two reads
		return nil
	})
	return all, err
}

// entryBytes is roughly the room of an entry in the cache, without its profile.
const entryBytes = 1024 + names.PairOverhead

// remember reads the entry of e.Number into e, and puts it into the cache. It is the file's
// entry as long as the file has its revision.
func (d *Directory) remember(x *engine.Rx, e *relay.Entry) (err error) {
	size := entryBytes
	known, failed := x.C.Row(func(r *sqlite.Rows) {
		*e, err = scanEntry(r, false)
		size += 2 * len(r.Text(5))
	}, entryColumns+"WHERE m.id = ?", int64(e.Number))
	if err = cmp.Or(failed, err); err != nil {
		return err
	}
	if !known {
		e.Removed = true
		return nil
	}
	d.entries.Put(e.Number, *e, size)
	return nil
}

// Entry reads one Mecha with its card. Error: MechaNotFound, even if viewer only cannot
// see the Mecha.
func (d *Directory) Entry(ctx context.Context, a relay.Address, viewer relay.Mecha) (relay.Entry, error) {
	return engine.Get(ctx, d.w.As(viewer.Number).Point, func(x *engine.Rx) (relay.Entry, error) {
		e, err := ReadEntry(x, a)
		if err == nil && !e.VisibleTo(viewer.Address) {
			err = dictionary.NotFound(a)
		}
		return e, err
	})
}

func ReadEntry(x *engine.Rx, a relay.Address) (e relay.Entry, err error) {
	some, err := Entries(x, true, "WHERE m.address = ? AND m.removed_at IS NULL", string(a))
	if err == nil && (len(some) == 0 || some[0].Address != a) {
		err = dictionary.NotFound(a)
	}
	if err != nil {
		return e, err
	}
	return some[0], nil
}
