package check

import (
	"encoding/json"
	"fmt"

	"relay/db/internal/sqlite"
	"relay/db/relay"
)

func (a *audit) checkAddresses() error {
	err := a.each(func(r *sqlite.Rows) {
		if _, err := relay.ParseAddress(r.Text(1)); err != nil {
			a.finding.Fault(fmt.Sprintf("Mecha %d: %s is not a valid address", r.Int(0), relay.Quote(r.Text(1))))
		}
	}, "SELECT id, address FROM mecha")
	if err != nil {
		return err
	}
	return a.ofRows(`SELECT min(address) || ' and ' || max(address) FROM mecha GROUP BY address COLLATE NOCASE
		HAVING count(*) > 1`)
}

// checkDirectory checks the revisions, by which the search index follows the directory
// (db/internal/directory/entry_sql.go), and the rows that a removal must have deleted.
func (a *audit) checkDirectory() error {
	err := a.ofRows(`SELECT count(*) || ' Mechas have the revision ' || revision FROM mecha GROUP BY revision
		HAVING count(*) > 1 OR revision <= 0`)
	if err != nil {
		return err
	}
	return a.ofRows(`SELECT address || ': it is removed, but has a profile or a key that is not revoked' FROM mecha m
		WHERE removed_at IS NOT NULL
		AND (EXISTS (SELECT 1 FROM profile p WHERE p.mecha = m.id) OR EXISTS (SELECT 1 FROM mecha_key k WHERE k.mecha = m.id
			AND k.revoked_at IS NULL))`)
}

func (a *audit) checkProfiles() error {
	return a.each(func(r *sqlite.Rows) {
		if reason := profileFault(r.Text(1), r.Text(2), r.Int(3), r.Text(4)); reason != "" {
			a.finding.Fault(r.Text(0) + ": " + reason)
		}
	}, `SELECT coalesce(m.address, 'Mecha ' || p.mecha), p.body, p.card, p.visibility, p.accept_from FROM profile p
		LEFT JOIN mecha m ON m.id = p.mecha`)
}

// profileFault returns what is wrong with a stored profile, or "".
func profileFault(body, card string, visibility int64, accept string) string {
	var p relay.Profile
	if err := json.Unmarshal([]byte(body), &p); err != nil {
		return "its profile cannot be read"
	}
	if err := p.Check(); err != nil {
		return "its profile: " + err.(*relay.Error).Detail
	}
	if p.Visibility.Number() != visibility {
		return fmt.Sprintf("its profile has the visibility %s, but is stored with another", p.Visibility)
	}
	if string(p.Stored().AcceptFrom) != accept {
		return "who may write to it is stored otherwise than in its profile"
	}
	if card != "" && !json.Valid([]byte(card)) {
		return "its agent card cannot be read"
	}
	return ""
}

func (a *audit) checkKeys() error {
	return a.each(func(r *sqlite.Rows) {
		if reason := keyFault(r.Text(1), r.Blob(2), r.Text(3), r.Text(4)); reason != "" {
			a.finding.Fault(fmt.Sprintf("key %d: %s", r.Int(0), reason)) // by its number, since a faulty id may be any text
		}
	}, "SELECT id, public_id, hash, secret, label FROM mecha_key")
}

func (a *audit) checkSearches() error {
	return a.each(func(r *sqlite.Rows) {
		switch {
		case !relay.SearchID(r.Text(1)).WellFormed():
			a.finding.Fault(fmt.Sprintf("search %d: its id is not of the form srch_…", r.Int(0)))
		case r.Text(2) != "" && !json.Valid([]byte(r.Text(2))): // an expired answer is empty
			a.finding.Fault(r.Text(1) + ": its answer cannot be read")
		}
	}, "SELECT position, id, answer FROM search")
}
