package survey

import (
	"context"
	"strings"

	"relay/db/internal/engine"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// lookedKeys are keys without secrets, with their states, as KeyState. Its arguments are
// now and the time up to which an end is soon, in Unix ms.
const lookedKeys = `SELECT k.id, k.public_id, m.address, k.label, k.created_at, k.expires_at, k.revoked_at,
	u.last_used_at AS used, k.broadcast, k.secret IS NOT NULL AS secret,
	CASE WHEN k.revoked_at IS NOT NULL THEN 4 WHEN k.ended IS NOT NULL OR k.expires_at <= ? THEN 3 WHEN k.expires_at <= ?
	THEN 0 WHEN u.last_used_at IS NULL THEN 1 ELSE 2 END AS state
	FROM mecha_key k JOIN mecha m ON m.id = k.mecha LEFT JOIN key_use u ON u.key = k.id WHERE `

const hasKeyText = "(? = '' OR instr(lower(m.address || ' ' || k.label || ' ' || k.public_id), ?) > 0)"

// The counts of the states of all keys with a text, and a page of the keys that meet a condition.
// Its last arguments are the state, or -1 for all, how many to read, and how many to skip.
const countKeys = "SELECT state, count(*) FROM (" + lookedKeys + hasKeyText + ") GROUP BY state"

func pageOfKeys(where string) string {
	return "SELECT public_id, address, label, created_at, expires_at, revoked_at, used, broadcast, secret, state FROM (" +
		lookedKeys + where + `)
		WHERE ? IN (-1, state) ORDER BY state, CASE state WHEN 0 THEN expires_at WHEN 2 THEN -used WHEN 3 ` +
		`THEN -expires_at WHEN 4 THEN -revoked_at END, id DESC LIMIT ? OFFSET ?`
}

// Keys reads a page of all keys. It reads each of them, some million a second, since a relay
// has few keys compared to messages.
func (i Inspector) Keys(q KeyQuery) (p KeyPage, err error) {
	text := strings.ToLower(q.Text)
	err = i.Point(context.Background(), func(x *engine.Rx) error {
		now := x.Now.UnixMilli()
		r := x.C.Query(countKeys, now, x.Now.Add(KeySoon).UnixMilli(), text, text)
		for r.Next() {
			p.Counts[r.Int(0)] = int(r.Int(1))
		}
		if err := r.Close(); err != nil {
			return err
		}
		p.List, p.More, err = keyPage(x, q, hasKeyText, text, text)
		return err
	})
	return p, err
}

// keyPage reads a page of the keys k of the Mechas m that meet a condition.
func keyPage(x *engine.Rx, q KeyQuery, where string, args ...any) (list []Key, more bool, err error) {
	state := int64(-1)
	if q.State != nil {
		state = int64(*q.State)
	}
	args = append([]any{x.Now.UnixMilli(), x.Now.Add(KeySoon).UnixMilli()}, args...)
	return engine.Page(x.C.Query(pageOfKeys(where), append(args, state, int64(q.Limit+1), int64(q.Offset))...),
		q.Limit, readLookedKey)
}

func readLookedKey(r *sqlite.Rows) (Key, error) {
	return Key{ID: relay.KeyID(r.Text(0)), Mecha: relay.Address(r.Text(1)), Label: r.Text(2),
		CreatedAt: relay.UnixMilli(r.Int(3)), ExpiresAt: relay.UnixMilli(r.Int(4)), RevokedAt: relay.UnixMilli(r.Int(5)),
		LastUsed: relay.UnixMilli(r.Int(6)), Broadcast: r.Int(7) != 0, Secret: r.Int(8) != 0, State: KeyState(r.Int(9))}, nil
}
