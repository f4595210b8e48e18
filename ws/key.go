package ws

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"relay/db/relay"
)

// heldKey is the key that a listener was opened with. It must hold for as long
// as the listener is open.
type heldKey struct {
	key    *relay.Key                // as it was authenticated
	reread atomic.Pointer[relay.Key] // as it was read from the store since; nil: it still is as it was authenticated
}

func (k *heldKey) mechaID() relay.MechaNumber { return k.key.Mecha.Number }
func (k *heldKey) keyID() relay.KeyID         { return k.key.ID }
func (k *heldKey) renewKey(key *relay.Key)    { k.reread.Store(key) }

// checkKey refuses a key that does not hold now: KeyRevoked, KeyExpired.
func (k *heldKey) checkKey(now time.Time) error {
	if key := k.reread.Load(); key != nil {
		return key.Check(now)
	}
	return k.key.Check(now)
}

// recheck refuses a key that has been revoked, or has expired, since it was
// authenticated. The listener is registered before, so that CheckKeys finds it
// if the key changes later.
func (h *Hub) recheck(held *heldKey) error {
	good, bad, err := h.readKeys([]relay.KeyID{held.key.ID})
	if err != nil {
		return err
	}
	if err := bad[held.key.ID]; err != nil {
		return err
	}
	key := good[held.key.ID]
	if key.ExpiresAt.Equal(held.key.ExpiresAt) && key.RevokedAt.Equal(held.key.RevokedAt) {
		return nil // the copy is not kept: one copy serves all connections of the key
	}
	held.reread.CompareAndSwap(nil, key) // else CheckKeys has read the key meanwhile, later than we have
	return nil
}

// readKeys reads keys from the store. bad says why a key does not hold; all others
// are in good.
func (h *Hub) readKeys(ids []relay.KeyID) (good map[relay.KeyID]*relay.Key, bad map[relay.KeyID]error, err error) {
	found, err := h.config.Store.KeysByID(context.Background(), ids)
	if err != nil {
		return nil, nil, err
	}
	good, bad = map[relay.KeyID]*relay.Key{}, map[relay.KeyID]error{}
	for _, k := range found {
		if err := k.Check(h.config.Now()); err != nil {
			bad[k.ID] = err
		} else {
			good[k.ID] = k
		}
	}
	for _, id := range ids {
		if good[id] == nil && bad[id] == nil {
			bad[id] = relay.Errorf(relay.KeyRevoked, "the key %s has been removed", id)
		}
	}
	return good, bad, nil
}

// CheckKeys ends the listeners whose key no longer holds, and notes until when
// the other keys hold. The store calls it when keys have changed. It returns at
// once. If the store cannot be read, the hub makes the check again within a second.
func (h *Hub) CheckKeys() {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.closed || !h.keyCheckQueued.CompareAndSwap(false, true) {
		return
	}
	h.wg.Go(func() {
		h.keyCheck.Lock() // one check after the other, or an older reading might be noted last
		defer h.keyCheck.Unlock()
		h.keyCheckQueued.Store(false)
		good, bad, err := h.readKeys(h.keysInUse())
		if err != nil {
			h.config.Logger.Error("cannot check the keys of the connections; trying again", "error", err)
			h.keyCheckFailed.Store(true)
			return
		}
		h.renewKeys(good)
		h.endKeys(bad)
	})
}

func (h *Hub) keysInUse() []relay.KeyID {
	ids := map[relay.KeyID]bool{}
	for l := range h.all() {
		ids[l.keyID()] = true
	}
	return slices.Collect(maps.Keys(ids))
}

// keysOver returns the keys that no longer hold, as far as the listeners know,
// and why.
func (h *Hub) keysOver() map[relay.KeyID]error {
	now, bad := h.config.Now(), map[relay.KeyID]error{}
	for l := range h.all() {
		if err := l.checkKey(now); err != nil {
			bad[l.keyID()] = err
		}
	}
	return bad
}

func (h *Hub) renewKeys(good map[relay.KeyID]*relay.Key) {
	for l := range h.all() {
		if k := good[l.keyID()]; k != nil {
			l.renewKey(k)
		}
	}
}

func (h *Hub) endKeys(bad map[relay.KeyID]error) {
	if len(bad) == 0 {
		return
	}
	for l := range h.all() {
		if err := bad[l.keyID()]; err != nil {
			l.end(err)
		}
	}
}
