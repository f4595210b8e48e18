package directory

import (
	"context"
	"errors"
	"sort"
	"strings"
	"time"

	"relay/db/internal/engine"
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

// Suggest adds similar addresses to a RecipientNotFound error, of Mechas that the caller may
// find. It does not run in the writer's goroutine, because the scan is too slow for that.
// Suggestions are a courtesy, so they are left out if a scan of the caller waits already.
func (d *Directory) Suggest(err error, a relay.Address, caller relay.KeyNumber) error {
	var e *relay.Error
	if !errors.As(err, &e) || e.Code != relay.RecipientNotFound {
		return err
	}
	t := d.w.Readers.Scan(d.keys.mechaOf(caller))
	t.MaxWaiting = 1
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

// closeAddresses returns up to three registered addresses that are similar to a, the most
// similar first: they begin like a, and differ in few letters. looked is how many
// addresses were compared.
func closeAddresses(x *engine.Rx, a, viewer relay.Address) (out []relay.Address, looked int, err error) {
	type candidate struct {
		address relay.Address
		edits   int
	}
	var found []candidate
	seen, wanted := map[relay.Address]bool{}, strings.ToLower(string(a))
	for _, prefix := range []string{string(a[:min(2, len(a))]), string(a[:1])} {
		r := x.C.Query(`SELECT address, coalesce(visibility, 0) FROM mecha LEFT JOIN profile ON mecha = id WHERE address >= ?
			AND address < ? AND removed_at IS NULL AND coalesce(visibility, 0) <> ? LIMIT ?`, prefix, prefix+"\x7f",
			relay.Unlisted.Number(), int64(suggestScan))
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

// edits returns the optimal string alignment distance: how many insertions, deletions,
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

// register returns the number of a Mecha, and makes the Mecha if it is new or was removed.
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
