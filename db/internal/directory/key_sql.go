package directory

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"relay/db/cache"
	"relay/db/internal/engine"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// keyCache has the keys that have been used, by the hash of their text. It is emptied
// whenever a key may have changed, here or in another process. It is safe for
// concurrent use.
type keyCache struct {
	byHash *cache.Cache[[sha256.Size]byte, *usedKey]
	mu     sync.RWMutex
	used   map[relay.KeyNumber]*keyNote // not emptied with the keys
}

// maxKeys is how many keys are remembered.
const maxKeys = 1 << 20

// keyNote has the facts about a used key that stay when the cache is emptied.
type keyNote struct {
	mecha relay.MechaNumber
	last  atomic.Int64 // the time of its last use, in Unix ms
}

// usedKey is a cached key with the time of its last use.
type usedKey struct {
	*relay.Key
	note *keyNote
}

func newKeyCache() keyCache {
	return keyCache{byHash: cache.New[[sha256.Size]byte, *usedKey](maxKeys), used: map[relay.KeyNumber]*keyNote{}}
}

// add takes a key that was read from the file in an epoch of byHash.
func (c *keyCache) add(k *relay.Key, hash [sha256.Size]byte, epoch int) *usedKey {
	c.mu.Lock()
	defer c.mu.Unlock()
	note := c.used[k.Number]
	if note == nil {
		note = &keyNote{mecha: k.Mecha.Number}
		note.last.Store(relay.MilliOf(k.LastUsedAt))
		c.used[k.Number] = note
	}
	u := &usedKey{k, note}
	c.byHash.PutSince(epoch, hash, u, 1)
	return u
}

// mechaOf returns the Mecha of a key that was used in this process, and 0 for the key 0. Any
// other key, as in a program that takes no requests, counts as a separate Mecha: the result
// is then negative.
func (c *keyCache) mechaOf(k relay.KeyNumber) relay.MechaNumber {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if note := c.used[k]; note != nil {
		return note.mecha
	}
	return -relay.MechaNumber(k)
}

// Key finds the key with a text and checks it (PROTOCOL §2). It also notes the key's use.
// Errors: MalformedKey, UnknownKey, KeyRevoked, KeyExpired; NotCurrent if this store has no such
// key, and is behind its log. A new key works as soon as the command that made it has returned,
// even if another process made it.
func (d *Directory) Key(ctx context.Context, text string) (*relay.Key, error) {
	hash := sha256.Sum256([]byte(text))
	u, known := d.keys.byHash.Find(hash)
	if !known {
		epoch := d.keys.byHash.Epoch()
		if err := relay.CheckKeyText(text); err != nil {
			return nil, err
		}
		behind := d.w.CheckFresh() // before it reads, since it may catch up meanwhile
		found, err := d.findKeys(ctx, "k.hash = ?", hash[:])
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			if behind != nil {
				return nil, behind // the other nodes may know it
			}
			return nil, relay.Errorf(relay.UnknownKey, "this relay has issued no such key")
		}
		found[0].Text = relay.Secret(text)
		u = d.keys.add(found[0], hash, epoch)
	}
	now := d.w.Opts.Now()
	if err := u.Check(now); err != nil {
		return nil, err
	}
	u.note.last.Store(now.UnixMilli())
	d.saw(u.Mecha.Number, now)
	return u.Key, nil
}

// KeysByID reads keys from the file, not from the cache, and leaves out unknown ones. It
// does not wait for other kinds of reads. Any goroutine may call it.
func (d *Directory) KeysByID(ctx context.Context, ids []relay.KeyID) (all []*relay.Key, err error) {
	for some := range slices.Chunk(ids, keysAtOnce) {
		list, err := json.Marshal(some)
		if err != nil {
			return nil, err
		}
		found, err := d.findKeys(ctx, "k.public_id IN (SELECT value FROM json_each(?))", string(list))
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// keysAtOnce is how many keys one query reads. It is small, because requests wait for it.
const keysAtOnce = 500

const keyColumns = `SELECT k.id, k.public_id, k.mecha, k.secret, k.label, k.created_at, k.expires_at, k.revoked_at,
	u.last_used_at, m.address, m.created_at, k.ended, k.broadcast FROM mecha_key k JOIN mecha m ON m.id = k.mecha
	LEFT JOIN key_use u ON u.key = k.id`

// findKeys reads keys from the file, in the lane of the keys.
func (d *Directory) findKeys(ctx context.Context, where string, arg any) ([]*relay.Key, error) {
	return engine.Get(ctx, d.w.In(d.w.Readers.Key()), func(x *engine.Rx) ([]*relay.Key, error) {
		return keys(x, where, arg)
	})
}

func keys(x *engine.Rx, where string, arg any) ([]*relay.Key, error) {
	return engine.All(x.C.Query(keyColumns+" WHERE "+where, arg), readKey)
}

func readKey(r *sqlite.Rows) *relay.Key {
	return &relay.Key{
		Number: relay.KeyNumber(r.Int(0)), ID: relay.KeyID(r.Text(1)), Secret: relay.Secret(r.Text(3)), Label: r.Text(4),
		CreatedAt: relay.UnixMilli(r.Int(5)), ExpiresAt: relay.UnixMilli(r.Int(6)), RevokedAt: relay.UnixMilli(r.Int(7)),
		LastUsedAt: relay.UnixMilli(r.Int(8)),
		Mecha: relay.Mecha{Number: relay.MechaNumber(r.Int(2)), Address: relay.Address(r.Text(9)),
			CreatedAt: relay.UnixMilli(r.Int(10))},
		Ended: !r.Null(11), Broadcast: r.Int(12) != 0,
	}
}

// Keys lists the keys of one address, or all if it is "", the oldest first.
func (d *Directory) Keys(ctx context.Context, of relay.Address) ([]*relay.Key, error) {
	return engine.Get(ctx, d.w.As(0).Scan, func(x *engine.Rx) ([]*relay.Key, error) { return KeysOf(x, of) })
}

func KeysOf(x *engine.Rx, a relay.Address) ([]*relay.Key, error) {
	return keys(x, "? IN ('', m.address) ORDER BY k.id", string(a))
}

// Caller reads the present key of a write, and checks it at the write's time. Errors:
// UnknownKey, KeyRevoked, KeyExpired.
func (d *Directory) Caller(t *engine.Tx, number relay.KeyNumber) (*relay.Key, error) {
	k, known := d.callers.Find(number)
	if !known {
		if _, err := t.C.Row(func(r *sqlite.Rows) { k = readKey(r) }, keyColumns+" WHERE k.id = ?",
			int64(number)); err != nil {
			return nil, err
		}
		if k == nil {
			return nil, relay.Errorf(relay.UnknownKey, "this relay has issued no such key")
		}
		d.callers.Put(number, k, 1)
	}
	return k, k.Check(t.Now)
}

const maxCallers = 1 << 17 // keys that the writer remembers

// Issue completes the write and makes the key, and returns once that is durable. Errors:
// InvalidAddress, InvalidTime, InvalidRequest (of the label); for the key that it
// replaces UnknownKey, KeyRevoked, KeyExpired; and those of every write. Any goroutine
// may call it.
func (d *Directory) Issue(i *relay.IssueKey) (relay.IssuedKey, error) {
	keyText, err := i.Complete()
	if err != nil {
		return relay.IssuedKey{}, err
	}
	k, err := engine.Administer[*relay.Key](d.w, i)
	if err == nil && k == nil { // a server has made it (package admin)
		k, err = d.issued(i.ID)
	}
	if err != nil {
		return relay.IssuedKey{}, err
	}
	return relay.IssuedKey{Key: k, Text: keyText, Secret: string(k.Secret)}, nil
}

// issued reads a key that has just been issued.
func (d *Directory) issued(id relay.KeyID) (*relay.Key, error) {
	all, err := d.KeysByID(context.Background(), []relay.KeyID{id})
	if err == nil && len(all) == 0 {
		err = relay.Errorf(relay.UnknownKey, "the key %s was issued, and has been removed meanwhile", relay.Quote(string(id)))
	}
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

func (d *Directory) issueKey(t *engine.Tx, i *relay.IssueKey) (*relay.Key, error) {
	address, label, expires, withSecret, broadcast := i.Address, i.Label, i.ExpiresAt, i.WithSecret, i.Broadcast
	if i.Replaces != "" {
		old, err := d.endReplaced(t, i)
		if err != nil {
			return nil, err
		}
		address, withSecret, broadcast = old.Mecha.Address, old.Secret != "", old.Broadcast
		if label == "" {
			label = old.Label
		}
		if !old.ExpiresAt.IsZero() { // the new key is valid as long as the old key was issued for
			expires = i.At.Add(old.ExpiresAt.Sub(old.CreatedAt))
		}
	}
	mecha, err := d.register(t, address, i.At)
	if err != nil {
		return nil, err
	}
	var secret any
	if withSecret {
		secret = string(i.Secret)
	}
	err = t.C.Exec(`INSERT INTO mecha_key (public_id, mecha, hash, secret, label, created_at, expires_at, broadcast) `+
		`VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
		string(i.ID), int64(mecha), i.Hash[:], secret, label, i.At.UnixMilli(),
		sqlite.OrNull(relay.MilliOf(expires)), broadcast)
	if err != nil {
		return nil, err
	}
	k, err := keyByID(&t.Rx, i.ID)
	if err != nil {
		return nil, err
	}
	return k, d.RaiseKeysVersion(t)
}

func keyByID(x *engine.Rx, id relay.KeyID) (k *relay.Key, err error) {
	_, err = x.C.Row(func(r *sqlite.Rows) { k = readKey(r) }, keyColumns+" WHERE k.public_id = ?", string(id))
	return k, err
}

// endReplaced reads the replaced key and sets its end, unless it ends sooner.
func (d *Directory) endReplaced(t *engine.Tx, i *relay.IssueKey) (*relay.Key, error) {
	old, err := keyByID(&t.Rx, i.Replaces)
	if err != nil {
		return nil, err
	}
	if old == nil {
		return nil, relay.Errorf(relay.UnknownKey, "there is no key %s (relay key list)", relay.Quote(string(i.Replaces)))
	}
	if err := old.Check(i.At); err != nil {
		return nil, err
	}
	end := i.At.Add(i.Overlap)
	if !old.ExpiresAt.IsZero() && old.ExpiresAt.Before(end) {
		return old, nil
	}
	return old, t.C.Exec("UPDATE mecha_key SET expires_at = ? WHERE id = ?", end.UnixMilli(), int64(old.Number))
}

// RaiseKeysVersion lets this process and others notice that keys changed.
func (d *Directory) RaiseKeysVersion(t *engine.Tx) error {
	t.Changed |= engine.KeysChanged
	d.callers.Forget()
	return t.C.Exec("UPDATE setting SET value = value + 1 WHERE name = 'keys_version'")
}

// Revoke ends a key, and returns once that is durable and the key no longer works here.
// Revoking a key again changes nothing. Errors: UnknownKey, and those of every write. Any
// goroutine may call it.
func (d *Directory) Revoke(r *relay.RevokeKey) error {
	_, err := engine.Administer[*relay.Key](d.w, r)
	return err
}

// revokeKey revokes a key, and returns the key as it was before.
func (d *Directory) revokeKey(t *engine.Tx, r *relay.RevokeKey) (*relay.Key, error) {
	k, err := keyByID(&t.Rx, r.ID)
	if err != nil {
		return nil, err
	}
	if k == nil {
		return nil, relay.Errorf(relay.UnknownKey, "there is no key %s (relay key list)", relay.Quote(string(r.ID)))
	}
	newest, err := t.Newest()
	if err != nil {
		return nil, err
	}
	err = t.C.Exec("UPDATE mecha_key SET revoked_at = coalesce(min(revoked_at, ?1), ?1), ended = coalesce(ended, ?2) "+
		"WHERE id = ?3",
		r.At.UnixMilli(), int64(newest), int64(k.Number))
	if err != nil {
		return nil, err
	}
	if err := d.RaiseKeysVersion(t); err != nil {
		return nil, err
	}
	return k, mustHaveNoLiveKey(t, "id", int64(k.Number))
}

// mustHaveNoLiveKey verifies that the keys whose column has a value are revoked, since somebody relies on it.
func mustHaveNoLiveKey(t *engine.Tx, column string, value int64) error {
	live, err := t.C.Number("SELECT EXISTS (SELECT 1 FROM mecha_key WHERE "+column+" = ? AND revoked_at IS NULL)", value)
	if err == nil && live != 0 {
		err = errors.New("the database did not keep that the key is revoked: relay check may say why")
	}
	return err
}

// keyUse stores, about once a minute, when keys were last used.
type keyUse struct {
	w       *engine.Store
	cache   *keyCache
	wrote   time.Time
	written map[relay.KeyNumber]int64 // the times that were stored, in Unix ms
}

const keyUseEvery = time.Minute

func (u *keyUse) Due(now time.Time) bool { return now.Sub(u.wrote) >= keyUseEvery }

func (u *keyUse) Do(now time.Time) {
	u.flush()
	u.wrote = now
}

func (u *keyUse) flush() {
	used := lastUsed{}
	u.cache.mu.RLock()
	for number, note := range u.cache.used {
		if at := note.last.Load(); at > u.written[number] {
			used[number] = at
		}
	}
	u.cache.mu.RUnlock()
	if len(used) == 0 {
		return
	}
	maps.Copy(u.written, used)
	u.w.DoNow(used, u.w.Logged("the times of last use of keys were not stored"))
}

// lastUsed is the local write that stores when keys were last used, in Unix ms. It leaves
// out keys that have been removed.
type lastUsed map[relay.KeyNumber]int64

func (l lastUsed) Size() int { return 32 * len(l) }

func (l lastUsed) Apply(t *engine.Tx) error {
	for number, at := range l {
		if err := t.C.Exec("INSERT INTO key_use (key, last_used_at) SELECT id, ?2 FROM mecha_key WHERE id = ?1 "+
			"ON CONFLICT (key) DO UPDATE SET last_used_at = ?2", int64(number), at); err != nil {
			return err
		}
	}
	return nil
}
