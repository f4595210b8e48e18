// Package directory is the room of registered Mechas: their keys, their profiles, when they were
// last seen, and from whom they accept messages.
//
// A write calls Caller for its key, and Recipient and AcceptFrom for its recipient: these see the
// changes of the present transaction. A request calls Key, Presence and Entries, from any
// goroutine: these read the file, and cache what they have read until the file changes. Lessons is
// called for new profiles and removed Mechas.
package directory

import (
	"fmt"
	"sync"
	"time"

	"relay/db/cache"
	"relay/db/internal/dictionary"
	"relay/db/internal/engine"
	"relay/db/internal/names"
	"relay/db/internal/replays"
	"relay/db/relay"
)

// Lessons is called when a Mecha changes, in the same transaction.
type Lessons interface {
	// ProfilePut is called for a new profile; off says that the profile forbids learning.
	ProfilePut(t *engine.Tx, id relay.MechaNumber, off bool, at time.Time) error
	// MechaRemoved is called for a Mecha that is removed from the directory.
	MechaRemoved(t *engine.Tx, id relay.MechaNumber, at time.Time) error
}

// Directory is the room of Mechas, their keys and their profiles. Its caches for the writer
// equal the file, with the changes of the present transaction.
type Directory struct {
	engine.Quiet
	w          *engine.Store
	dictionary *dictionary.Dictionary
	lessons    Lessons
	replays    *replays.Replays
	callers    *cache.Cache[relay.KeyNumber, *relay.Key] // the keys of recent writes
	accepts    *cache.Cache[relay.MechaNumber, relay.AcceptFrom]
	keyUse     keyUse

	// For requests, on any goroutine:

	keys     keyCache
	seen     sync.Map                                     // MechaNumber → *atomic.Int64: Unix ms of the last request
	crewOnly *cache.Cache[relay.MechaNumber, string]      // see maxCrews
	entries  *cache.Cache[relay.MechaNumber, relay.Entry] // read lately, without cards
}

func New(w *engine.Store, words *dictionary.Dictionary, used *replays.Replays, l Lessons) *Directory {
	d := &Directory{w: w, dictionary: words, replays: used, lessons: l, keys: newKeyCache(),
		callers: cache.New[relay.KeyNumber, *relay.Key](maxCallers), accepts: cache.New[relay.MechaNumber,
			relay.AcceptFrom](maxAccepts),
		crewOnly: cache.New[relay.MechaNumber, string](maxCrews), entries: cache.New[relay.MechaNumber,
			relay.Entry](names.CacheBytes)}
	d.keyUse = keyUse{w: w, cache: &d.keys, written: map[relay.KeyNumber]int64{}}
	w.MechaOf = d.keys.mechaOf
	w.Listeners.Add(engine.KeysChanged, d.keys.byHash.Forget)
	w.Listeners.Add(engine.EntriesChanged, d.crewOnly.Forget)
	return d
}

// Start begins to note the last use of keys.
func (d *Directory) Start() { d.keyUse.wrote = d.w.Opts.Now() }

func (d *Directory) Forget() {
	d.callers.Forget()
	d.accepts.Forget()
}

func (d *Directory) Due(now time.Time) bool { return d.keyUse.Due(now) }

func (d *Directory) Do(now time.Time) { d.keyUse.Do(now) }

func (d *Directory) Flush() { d.keyUse.flush() }

// useNonce writes nothing, since the entry of the log keeps the nonce.
func (d *Directory) useNonce(t *engine.Tx, u *relay.UseNonce) (engine.None, error) {
	_, err := d.Caller(t, u.Key)
	return engine.None{}, err
}

func (d *Directory) Kinds(all *engine.Table) {
	engine.Add(all, engine.Kind[*relay.PutProfile, engine.None]{Decide: d.putProfile, Silent: true, Note: noteProfile,
		By: func(p *relay.PutProfile) (relay.KeyNumber, relay.NonceHash) { return p.Key, p.Nonce }})
	engine.Add(all, engine.Kind[*relay.UseNonce, engine.None]{Decide: d.useNonce, Silent: true,
		By: func(u *relay.UseNonce) (relay.KeyNumber, relay.NonceHash) { return u.Key, u.Nonce }})
	engine.Add(all, engine.Kind[*relay.IssueKey, *relay.Key]{Decide: d.issueKey, Note: noteIssued, Keys: true})
	engine.Add(all, engine.Kind[*relay.RevokeKey,
		*relay.Key]{Decide: d.revokeKey, Silent: true, Note: noteRevoked, Keys: true})
	engine.Add(all, engine.Kind[*relay.RemoveMecha,
		engine.None]{Decide: d.removeMecha, Silent: true, Note: noteRemoved, Keys: true})
}

func noteProfile(p *relay.PutProfile, _ engine.None, n *relay.NotedAct) bool {
	n.What, n.Mecha = relay.ActProfileSet, p.Address
	return true
}

func noteIssued(i *relay.IssueKey, k *relay.Key, n *relay.NotedAct) bool {
	n.What, n.Mecha, n.Key, n.Detail = relay.ActKeyIssued, k.Mecha.Address, k.ID, describeKey(k)
	if i.Replaces != "" {
		n.What, n.Detail = relay.ActKeyRotated, fmt.Sprintf("replaces %s, which ends after %s; %s",
			i.Replaces, i.Overlap, n.Detail)
	}
	return true
}

func noteRevoked(r *relay.RevokeKey, k *relay.Key, n *relay.NotedAct) bool {
	n.What, n.Mecha, n.Key, n.Detail = relay.ActKeyRevoked, k.Mecha.Address, k.ID, describeKey(k)
	return k.RevokedAt.IsZero() || k.RevokedAt.After(r.At) // else it was revoked before
}

func noteRemoved(r *relay.RemoveMecha, _ engine.None, n *relay.NotedAct) bool {
	n.What, n.Mecha, n.Detail = relay.ActMechaRemoved, r.Address, "with its keys and its profile"
	return true
}

// describeKey returns the name by which people know a key.
func describeKey(k *relay.Key) string {
	text := "no label"
	if k.Label != "" {
		text = "label " + relay.Quote(k.Label)
	}
	if k.Broadcast {
		text += ", may write to all crews"
	}
	if !k.ExpiresAt.IsZero() {
		text += ", ends " + relay.FormatTime(k.ExpiresAt)
	}
	return text
}
