package file

import (
	"fmt"
	"time"

	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// RevivedKey is a key that the replaced database had ended, and that still works in the
// backup.
type RevivedKey struct {
	ID        relay.KeyID
	Address   relay.Address
	Label     string
	RevokedAt time.Time // zero: it was not revoked, but rotated
	EndsAt    time.Time // the end that the rotation set, or zero
}

// endedKey is a key's end in a database, in Unix ms, or 0.
type endedKey struct {
	hash             string
	revoked, expires int64
}

// keyEnds has the ends of a database's keys.
type keyEnds struct {
	ended   map[string]endedKey // by public_id
	known   map[string]bool     // all keys
	newest  int64               // the greatest number of a key
	secret  string              // of the store
	removed time.Time           // the assumed end of keys that were removed since
}

// endedKeys reads the ends of the keys of the database at path.
func endedKeys(path string) (*keyEnds, error) {
	c, _, err := OpenReadOnly(path)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	e := &keyEnds{ended: map[string]endedKey{}, known: map[string]bool{}, removed: time.Now()}
	if e.secret, err = secretOf(c); err != nil {
		return nil, err
	}
	r := c.Query("SELECT id, public_id, hash, revoked_at, expires_at FROM mecha_key")
	for r.Next() {
		e.newest, e.known[r.Text(1)] = max(e.newest, r.Int(0)), true
		if !r.Null(3) || !r.Null(4) {
			e.ended[r.Text(1)] = endedKey{string(r.Blob(2)), r.Int(3), r.Int(4)}
		}
	}
	return e, r.Close()
}

// wasRemoved reports whether the database had a key of the store with this secret, and no
// longer has it. Only keys that have ended are removed.
func (e *keyEnds) wasRemoved(secret string, number int64, id string) bool {
	return secret == e.secret && number < e.newest && !e.known[id]
}

func secretOf(c *sqlite.Conn) (secret string, err error) {
	_, err = c.Row(func(r *sqlite.Rows) { secret = string(r.Blob(0)) }, "SELECT value FROM setting WHERE name = 'secret'")
	return secret, err
}

// revivedKeys returns the keys of the copy at path that end sooner in the replaced database,
// or were removed there. ends has the keys of that database. If end is set, revivedKeys
// writes the ends into the copy and syncs it. It leaves out keys that have ended in the copy
// meanwhile.
func revivedKeys(path string, ends *keyEnds, end bool, now time.Time) (revived []RevivedKey, err error) {
	c, err := sqlite.Open(path, sqlite.Receiving)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	defer func() {
		if closed := c.Close(); err == nil {
			err = closed
		}
		if err == nil && len(revived) > 0 && end {
			_, err = sync(path)
		}
	}()
	secret, err := secretOf(c)
	if err != nil {
		return nil, err
	}
	r := c.Query(
		`SELECT k.public_id, k.hash, k.expires_at, m.address, k.label, k.id FROM mecha_key k JOIN mecha m ON m.id = k.mecha
		WHERE k.revoked_at IS NULL AND coalesce(k.expires_at, ?1 + 1) > ?1 ORDER BY k.id`, now.UnixMilli())
	for r.Next() {
		e, known := ends.ended[r.Text(0)]
		if ends.wasRemoved(secret, r.Int(5), r.Text(0)) {
			e, known = endedKey{string(r.Blob(1)), ends.removed.UnixMilli(), 0}, true
		}
		sooner := e.expires != 0 && (r.Null(2) || e.expires < r.Int(2))
		if known && e.hash == string(r.Blob(1)) && (e.revoked != 0 || sooner) {
			revived = append(revived, RevivedKey{ID: relay.KeyID(r.Text(0)), Address: relay.Address(r.Text(3)), Label: r.Text(4),
				RevokedAt: relay.UnixMilli(e.revoked), EndsAt: relay.UnixMilli(e.expires)})
		}
	}
	if err := r.Close(); err != nil || !end || len(revived) == 0 {
		return revived, err
	}
	return revived, endKeys(c, revived)
}

// endKeys writes the ends of the keys, in one transaction.
func endKeys(c *sqlite.Conn, keys []RevivedKey) error {
	if err := c.BeginWrite(); err != nil {
		return err
	}
	for _, k := range keys {
		err := c.Exec("UPDATE mecha_key SET revoked_at = ?1, expires_at = ?2 WHERE public_id = ?3",
			sqlite.OrNull(relay.MilliOf(k.RevokedAt)), sqlite.OrNull(relay.MilliOf(k.EndsAt)), string(k.ID))
		if err != nil {
			c.Rollback()
			return err
		}
	}
	return c.Commit()
}
