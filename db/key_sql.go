package db

import (
	"context"
	"crypto/sha256"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"
)

// keyCache holds the keys that have been used, by the hash of their text. It is
// emptied whenever a key may have changed, here or in another process.
type keyCache struct {
	mu     sync.RWMutex
	byHash map[[sha256.Size]byte]*Key
	epoch  int
	used   map[int64]*atomic.Int64 // last-used times by number; these outlive the keys
}

// Key finds the key of a text and checks it: MalformedKey (without the store),
// UnknownKey, KeyRevoked, KeyExpired. A key works as soon as the command that
// made it has returned, in any process.
func (d *DB) Key(ctx context.Context, text string) (*Key, error) {
	hash := sha256.Sum256([]byte(text))
	d.keys.mu.RLock()
	k, epoch := d.keys.byHash[hash], d.keys.epoch
	d.keys.mu.RUnlock()
	if k == nil {
		var err error
		if k, err = d.loadKey(ctx, text, hash, epoch); err != nil {
			return nil, err
		}
	}
	now := d.opts.Now()
	if err := k.Check(now); err != nil {
		return nil, err
	}
	k.lastUsed.Store(now.UnixMilli())
	d.saw(k.Mecha.ID, now)
	return k, nil
}

func (d *DB) loadKey(ctx context.Context, text string, hash [sha256.Size]byte, epoch int) (*Key, error) {
	if err := checkKeyText(text); err != nil {
		return nil, err
	}
	k, err := d.findKey(ctx, "k.hash = ?", hash[:])
	if err != nil {
		return nil, err
	}
	if k == nil {
		return nil, Errorf(UnknownKey, "this relay has issued no such key")
	}
	d.keys.mu.Lock()
	defer d.keys.mu.Unlock()
	if used := d.keys.used[k.Number]; used != nil {
		k.lastUsed = used
	} else {
		d.keys.used[k.Number] = k.lastUsed
	}
	if d.keys.epoch == epoch { // else what was read may be old already
		d.keys.byHash[hash] = k
	}
	return k, nil
}

// KeyByID reads a key afresh: nil if there is none.
func (d *DB) KeyByID(ctx context.Context, id KeyID) (*Key, error) {
	return d.findKey(ctx, "k.public_id = ?", string(id))
}

const keyColumns = `SELECT k.id, k.public_id, k.mecha, k.secret, k.label, k.created_at, k.expires_at, k.revoked_at, k.last_used_at,
	m.address, m.created_at FROM mecha_key k JOIN mecha m ON m.id = k.mecha`

func (d *DB) findKey(ctx context.Context, where string, arg any) (k *Key, err error) {
	err = d.read(ctx, func(x *rx) error {
		_, err := x.c.row(func(r *rows) { k = readKey(r) }, keyColumns+" WHERE "+where, arg)
		return err
	})
	return k, err
}

func readKey(r *rows) *Key {
	k := &Key{
		lastUsed: new(atomic.Int64),
		Number:   r.int(0), ID: KeyID(r.text(1)), secret: r.text(3), Label: r.text(4),
		CreatedAt: unixMilli(r.int(5)), ExpiresAt: unixMilli(r.int(6)), RevokedAt: unixMilli(r.int(7)),
		Mecha: Mecha{ID: MechaID(r.int(2)), Address: Address(r.text(9)), CreatedAt: unixMilli(r.int(10))},
	}
	k.lastUsed.Store(r.int(8))
	return k
}

// Keys lists all keys, or those of one address, oldest first.
func (d *DB) Keys(ctx context.Context, of Address) (all []*Key, err error) {
	err = d.read(ctx, func(x *rx) error {
		r := x.c.query(keyColumns+" WHERE ? IN ('', m.address) ORDER BY k.id", string(of))
		for r.next() {
			all = append(all, readKey(r))
		}
		return r.close()
	})
	return all, err
}

// keysChanged forgets what is known of keys and tells the listeners.
func (d *DB) keysChanged() {
	d.keys.mu.Lock()
	d.keys.epoch++
	clear(d.keys.byHash)
	d.keys.mu.Unlock()
	d.listening.RLock()
	defer d.listening.RUnlock()
	for _, f := range d.onKeys {
		f()
	}
}

// IssueKey is the write that makes a key, registering its Mecha if it is new.
type IssueKey struct {
	At        time.Time
	Address   Address
	Label     string
	ExpiresAt time.Time // zero: never
	Secret    bool      // with a signing secret of its own
	// Replaces a key of the same Mecha, which ends at Overlap after At. ""
	// replaces none; Address, Label, life span
	// and Secret are then taken from the old key.
	Replaces KeyID
	Overlap  time.Duration

	text, secret string
	public       KeyID
	key          *Key
}

// IssuedKey is a new key with its secrets, which are shown once.
type IssuedKey struct {
	*Key
	Text   string
	Secret string // "" unless it has its own
}

const maxKeyLabel = 200

// Issue makes a key. Errors: InvalidAddress, InvalidRequest (label, expiry), UnknownKey (Replaces).
func (d *DB) Issue(i *IssueKey) (IssuedKey, error) {
	if i.Replaces == "" {
		if _, err := ParseAddress(string(i.Address)); err != nil {
			return IssuedKey{}, err
		}
	}
	if !i.ExpiresAt.IsZero() && !i.ExpiresAt.After(i.At) {
		return IssuedKey{}, FieldErrorf(InvalidTime, "expires_at", "lies in the past")
	}
	if len(i.Label) > maxKeyLabel {
		return IssuedKey{}, FieldErrorf(InvalidRequest, "label", "must be at most %d bytes", maxKeyLabel)
	}
	if strings.ContainsFunc(i.Label, unicode.IsControl) || !utf8.ValidString(i.Label) {
		return IssuedKey{}, FieldErrorf(InvalidRequest, "label", "must be text without control characters")
	}
	i.text, i.secret, i.public = newSecret(keyPrefix), newSecret(secretPrefix), KeyID(randomID("key_", 16))
	if err := d.do(i); err != nil {
		return IssuedKey{}, err
	}
	out := IssuedKey{Key: i.key, Text: i.text}
	if i.Secret {
		out.Secret = i.secret
	}
	return out, nil
}

func (i *IssueKey) size() int { return 512 }

func (i *IssueKey) apply(t *tx) error {
	if i.Replaces != "" {
		if err := i.replace(t); err != nil {
			return err
		}
	}
	mecha, err := t.register(i.Address, i.At)
	if err != nil {
		return err
	}
	var secret any
	if i.Secret {
		secret = i.secret
	}
	hash := sha256.Sum256([]byte(i.text))
	err = t.c.exec(`INSERT INTO mecha_key (public_id, mecha, hash, secret, label, created_at, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?)`,
		string(i.public), int64(mecha), hash[:], secret, i.Label, i.At.UnixMilli(), orNull(msOf(i.ExpiresAt)))
	if err != nil {
		return err
	}
	if _, err = t.c.row(func(r *rows) { i.key = readKey(r) }, keyColumns+" WHERE k.public_id = ?", string(i.public)); err != nil {
		return err
	}
	return t.keysTouched()
}

// replace gives the old key its end and takes over what it was.
func (i *IssueKey) replace(t *tx) error {
	var old *Key
	if _, err := t.c.row(func(r *rows) { old = readKey(r) }, keyColumns+" WHERE k.public_id = ?", string(i.Replaces)); err != nil {
		return err
	}
	if old == nil {
		return Errorf(UnknownKey, "there is no key %s", i.Replaces)
	}
	if err := old.Check(i.At); err != nil {
		return err
	}
	i.Address, i.Secret = old.Mecha.Address, old.HasSecret()
	if i.Label == "" {
		i.Label = old.Label
	}
	if !old.ExpiresAt.IsZero() { // the successor lives as long as it was meant to
		i.ExpiresAt = i.At.Add(old.ExpiresAt.Sub(old.CreatedAt))
	}
	end := i.At.Add(i.Overlap)
	if !old.ExpiresAt.IsZero() && old.ExpiresAt.Before(end) {
		return nil
	}
	return t.c.exec("UPDATE mecha_key SET expires_at = ? WHERE id = ?", end.UnixMilli(), old.Number)
}

// keysTouched lets other processes know that keys changed.
func (t *tx) keysTouched() error {
	t.keysChanged = true
	return t.c.exec("UPDATE setting SET value = value + 1 WHERE name = 'keys_version'")
}

// RevokeKey is the write that ends a key.
type RevokeKey struct {
	At time.Time
	ID KeyID
}

// Revoke ends a key at once: UnknownKey if there is none. Revoking again changes nothing.
func (d *DB) Revoke(r *RevokeKey) error { return d.do(r) }

func (r *RevokeKey) size() int { return 64 }

func (r *RevokeKey) apply(t *tx) error {
	known, err := t.c.row(nil, "SELECT 1 FROM mecha_key WHERE public_id = ?", string(r.ID))
	if err != nil {
		return err
	}
	if !known {
		return Errorf(UnknownKey, "there is no key %s (relay key list)", quote(string(r.ID)))
	}
	err = t.c.exec("UPDATE mecha_key SET revoked_at = coalesce(min(revoked_at, ?1), ?1) WHERE public_id = ?2", r.At.UnixMilli(), string(r.ID))
	if err != nil {
		return err
	}
	return t.keysTouched()
}

// touchKeys is the write that keeps the last-used times.
type touchKeys struct{ used map[int64]int64 }

func (k *touchKeys) size() int { return 32 * len(k.used) }

func (k *touchKeys) apply(t *tx) error {
	for number, at := range k.used {
		if err := t.c.exec("UPDATE mecha_key SET last_used_at = ? WHERE id = ?", at, number); err != nil {
			return err
		}
	}
	return nil
}

const touchEvery = time.Minute

// touchKeys writes down, about once a minute, which keys have been used.
func (w *writer) touchKeys(now time.Time) {
	if now.Sub(w.touched) >= touchEvery {
		w.flushLastUsed()
		w.touched = now
	}
}

func (w *writer) flushLastUsed() {
	used := map[int64]int64{}
	w.d.keys.mu.RLock()
	for number, last := range w.d.keys.used {
		if at := last.Load(); at > w.touchedUpto[number] {
			used[number] = at
		}
	}
	w.d.keys.mu.RUnlock()
	if len(used) == 0 {
		return
	}
	maps.Copy(w.touchedUpto, used)
	w.commit([]*op{{write: &touchKeys{used}, done: w.logged("last-used times were not kept")}})
}
