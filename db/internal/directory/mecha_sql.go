package directory

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"sync"
	"time"

	"relay/db/cache"
	"relay/db/internal/dictionary"
	"relay/db/internal/engine"
	"relay/db/internal/names"
	"relay/db/internal/replays"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// Recipient finds the Mecha with an address. Error: RecipientNotFound.
func (d *Directory) Recipient(t *engine.Tx, a relay.Address) (relay.MechaNumber, error) {
	id, err := d.dictionary.Mecha(t, a)
	if err == nil && id == 0 {
		err = relay.Errorf(relay.RecipientNotFound, "no Mecha %s is registered here", a)
	}
	return id, err
}

// Suggest adds similar addresses to a RecipientNotFound error, of Mechas that the
// caller may find. It does not run in the writer's goroutine, because the scan is too slow for
// that. Suggestions are a courtesy, so there are none if a scan of the caller waits
// already.
func (d *Directory) Suggest(err error, a relay.Address, caller relay.KeyNumber) error {
	var e *relay.Error
	if !errors.As(err, &e) || e.Code != relay.RecipientNotFound {
		return err
	}
	t := d.w.Readers.Scan(d.keys.mechaOf(caller))
	t.Most = 1
	_ = d.w.ReadIn(context.Background(), t, func(x *engine.Rx) error {
		var viewer relay.Address
		_, err := x.C.Row(func(r *sqlite.Rows) { viewer = relay.Address(r.Text(0)) },
			"SELECT address FROM mecha_key k JOIN mecha m ON m.id = k.mecha WHERE k.id = ?", int64(caller))
		if err == nil {
			e.DidYouMean, e.Looked, err = closeAddresses(x, a, viewer)
		}
		return err
	})
	if len(e.DidYouMean) > 0 {
		e.Detail += "; did you mean " + string(e.DidYouMean[0]) + "?"
	}
	return e
}

const (
	suggestScan    = 2000 // addresses that are compared, for each of two prefixes
	suggestEdits   = 3    // letters that may differ
	maxSuggestions = 3
)

// closeAddresses gives up to three registered addresses that are similar to a, the most
// similar first: they begin as a does, and differ in few letters. looked is how many
// addresses were compared.
func closeAddresses(x *engine.Rx, a, viewer relay.Address) (out []relay.Address, looked int, err error) {
	type candidate struct {
		address relay.Address
		edits   int
	}
	var found []candidate
	seen, wanted := map[relay.Address]bool{}, strings.ToLower(string(a))
	for _, prefix := range []string{string(a[:min(2, len(a))]), string(a[:1])} {
		r := x.C.Query(`SELECT address, coalesce(visibility, 0) FROM mecha LEFT JOIN profile ON mecha = id WHERE address >= ? AND address < ?
			AND removed_at IS NULL AND coalesce(visibility, 0) <> ? LIMIT ?`, prefix, prefix+"\x7f", relay.Unlisted.Number(), int64(suggestScan))
		for r.Next() {
			looked++
			known := relay.Address(r.Text(0))
			if r.Int(1) == relay.CrewOnly.Number() && known.Crew() != viewer.Crew() {
				continue
			}
			if n := edits(wanted, strings.ToLower(string(known))); n <= suggestEdits && !seen[known] {
				found = append(found, candidate{known, n})
			}
			seen[known] = true
		}
		if err := r.Close(); err != nil {
			return nil, looked, err
		}
	}
	sort.Slice(found, func(i, j int) bool {
		if found[i].edits != found[j].edits {
			return found[i].edits < found[j].edits
		}
		return found[i].address < found[j].address
	})
	for _, c := range found[:min(len(found), maxSuggestions)] {
		out = append(out, c.address)
	}
	return out, looked, nil
}

// edits gives the optimal string alignment distance: how many insertions, deletions,
// substitutions and swaps of neighbours turn a into b. If the lengths differ too much,
// it returns suggestEdits + 1 at once.
func edits(a, b string) int {
	if len(a)-len(b) > suggestEdits || len(b)-len(a) > suggestEdits {
		return suggestEdits + 1
	}
	before, prev, cur := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], before[j-2]+1)
			}
		}
		before, prev, cur = prev, cur, before
	}
	return prev[len(b)]
}

// register gives the number of a Mecha, and makes the Mecha if it is new or was removed.
// Error: InvalidAddress, if the address differs from a registered one only in letter case.
func (d *Directory) register(t *engine.Tx, a relay.Address, at time.Time) (relay.MechaNumber, error) {
	var id int64
	var known relay.Address
	removed := false
	found, err := t.C.Row(func(r *sqlite.Rows) { id, known, removed = r.Int(0), relay.Address(r.Text(1)), !r.Null(2) },
		"SELECT id, address, removed_at FROM mecha WHERE address = ?", string(a))
	switch {
	case err != nil:
		return 0, err
	case found && known != a:
		return 0, relay.Errorf(relay.InvalidAddress, "%s differs from the registered %s only in letter case", a, known)
	case found && !removed:
		return relay.MechaNumber(id), nil
	case found: // a removed Mecha comes back, with its messages
		d.dictionary.Mechas[a] = id
		return relay.MechaNumber(id), d.raiseRevision(t, relay.MechaNumber(id), at, nil)
	}
	_, err = t.C.Row(func(r *sqlite.Rows) { id = r.Int(0) },
		"INSERT INTO mecha (address, created_at) VALUES (?, ?) RETURNING id", string(a), at.UnixMilli())
	if err != nil {
		return 0, err
	}
	d.dictionary.Mechas[a] = id
	return relay.MechaNumber(id), d.raiseRevision(t, relay.MechaNumber(id), at, nil)
}

// Lessons hears what becomes of a Mecha, in the transaction that changes it.
type Lessons interface {
	// ProfilePut is called for a new profile; off: it forbids to learn about the Mecha.
	ProfilePut(t *engine.Tx, id relay.MechaNumber, off bool, at time.Time) error
	// MechaRemoved is called for a Mecha that is removed from the directory.
	MechaRemoved(t *engine.Tx, id relay.MechaNumber, at time.Time) error
}

// Directory is the room of Mechas, their keys and their profiles. The writer decides by what it
// has here, which is what the file has, with the changes of the present transaction.
type Directory struct {
	engine.Quiet
	w          *engine.Store
	dictionary *dictionary.Dictionary
	lessons    Lessons
	replays    *replays.Replays
	callers    *cache.Cache[relay.KeyNumber, *relay.Key] // the keys of recent writes
	accepts    *cache.Cache[relay.MechaNumber, relay.AcceptFrom]
	keyUse     keyUse

	// What requests need, for any goroutine:

	keys     keyCache
	seen     sync.Map                                     // MechaNumber → *atomic.Int64: Unix ms of the last request
	crewOnly *cache.Cache[relay.MechaNumber, string]      // see maxCrews
	entries  *cache.Cache[relay.MechaNumber, relay.Entry] // read lately, without cards
}

func New(w *engine.Store, words *dictionary.Dictionary, used *replays.Replays, l Lessons) *Directory {
	d := &Directory{w: w, dictionary: words, replays: used, lessons: l, keys: newKeyCache(),
		callers: cache.New[relay.KeyNumber, *relay.Key](maxCallers), accepts: cache.New[relay.MechaNumber, relay.AcceptFrom](maxAccepts),
		crewOnly: cache.New[relay.MechaNumber, string](maxCrews), entries: cache.New[relay.MechaNumber, relay.Entry](names.CacheBytes)}
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
func (d *Directory) Do(now time.Time)       { d.keyUse.Do(now) }
func (d *Directory) Flush()                 { d.keyUse.flush() }

// useNonce writes nothing itself: the entry of the log keeps the nonce.
func (d *Directory) useNonce(t *engine.Tx, u *relay.UseNonce) (engine.None, error) {
	_, err := d.Caller(t, u.Key)
	return engine.None{}, err
}

// Kinds adds the writes of the room to the table.
func (d *Directory) Kinds(all *engine.Table) {
	engine.Add(all, engine.Kind[*relay.PutProfile, engine.None]{Decide: d.putProfile, Silent: true, Note: noteProfile,
		By: func(p *relay.PutProfile) (relay.KeyNumber, relay.NonceHash) { return p.Key, p.Nonce }})
	engine.Add(all, engine.Kind[*relay.UseNonce, engine.None]{Decide: d.useNonce, Silent: true,
		By: func(u *relay.UseNonce) (relay.KeyNumber, relay.NonceHash) { return u.Key, u.Nonce }})
	engine.Add(all, engine.Kind[*relay.IssueKey, *relay.Key]{Decide: d.issueKey, Note: noteIssued, Keys: true})
	engine.Add(all, engine.Kind[*relay.RevokeKey, *relay.Key]{Decide: d.revokeKey, Silent: true, Note: noteRevoked, Keys: true})
	engine.Add(all, engine.Kind[*relay.RemoveMecha, engine.None]{Decide: d.removeMecha, Silent: true, Note: noteRemoved, Keys: true})
}

func noteProfile(p *relay.PutProfile, _ engine.None, n *relay.NotedAct) bool {
	n.What, n.Mecha = relay.ActProfileSet, p.Address
	return true
}

func noteIssued(i *relay.IssueKey, k *relay.Key, n *relay.NotedAct) bool {
	n.What, n.Mecha, n.Key, n.Detail = relay.ActKeyIssued, k.Mecha.Address, k.ID, describeKey(k)
	if i.Replaces != "" {
		n.What, n.Detail = relay.ActKeyRotated, fmt.Sprintf("replaces %s, which ends after %s; %s", i.Replaces, i.Overlap, n.Detail)
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

// describeKey says what people know a key by.
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
