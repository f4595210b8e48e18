package survey

import (
	"context"
	"encoding/json"
	"math"
	"strings"
	"time"

	"relay/db/internal/directory"
	"relay/db/internal/engine"
	"relay/db/internal/mailbox"
	"relay/db/internal/messages"
	"relay/db/internal/sqlite"
	"relay/db/look"
	"relay/db/relay"
)

const (
	leasesShown = 20
	leasesRead  = 5000 // rows of attempt that are read for the leases of one Mecha
	keysShown   = 50
	hourRows    = 5000 // messages of a Mecha that are counted for its hour, in each direction
	ackRows     = 2000 // received messages whose acknowledgements are counted
	profileRows = 500  // Mechas whose profiles are read in one view
	maxProfiles = 20_000
)

// pageOfMechas skips ?4 rows of the index of addresses, and reads ?3.
const pageOfMechas = `SELECT id, address, created_at FROM mecha INDEXED BY sqlite_autoindex_mecha_1
	WHERE removed_at IS NULL AND (?1 = '' OR instr(lower(address), ?1) > 0) AND id NOT IN (SELECT value FROM json_each(?2))
	ORDER BY address LIMIT ?3 OFFSET ?4`

// Mechas lists registered Mechas by their addresses. more says that further ones match. Its
// cost grows with the rows of one index that it skips.
func (i Inspector) Mechas(q MechaQuery) (list []Known, more bool, err error) {
	except, err := json.Marshal(append([]relay.MechaNumber{}, q.Except...))
	if err != nil {
		return nil, false, err
	}
	err = i.Point(context.Background(), func(x *engine.Rx) error {
		var late overview // the newest messages
		if err := late.readUnindexed(x, 0); err != nil {
			return err
		}
		r := x.C.Query(pageOfMechas, strings.ToLower(q.Text), string(except), int64(q.Limit+1), int64(q.Offset))
		list, more, err = engine.Page(r, q.Limit, func(r *sqlite.Rows) (Known, error) {
			return Known{Mecha: relay.Mecha{Number: relay.MechaNumber(r.Int(0)),
				Address: relay.Address(r.Text(1)), CreatedAt: relay.UnixMilli(r.Int(2))}}, nil
		})
		if err != nil {
			return err
		}
		for n := range list {
			k := &list[n]
			if k.LiveKeys, k.LastSeen, err = late.seen(x, k.Number); err != nil {
				return err
			}
		}
		return nil
	})
	return list, more, err
}

// Mecha returns the state of one Mecha, even of a removed one. Messages that were accepted
// before late count in Box.Late. Error: MechaNotFound.
func (i Inspector) Mecha(a relay.Address, late time.Time) (s MechaState, err error) {
	id, err := i.Number(a)
	if err != nil {
		return s, err
	}
	err = i.Point(context.Background(), func(x *engine.Rx) error {
		list, err := directory.Entries(x, false, "WHERE m.id = ?", int64(id))
		if err != nil {
			return err
		}
		s.Entry = list[0] // its row is never removed while rows refer to it, and Number has just found it
		if s.Box, err = box(x, id, relay.PositionAt(late)); err != nil {
			return err
		}
		s.Listed.LastSeen = s.Box.LastSeen
		_, err = x.C.Row(func(r *sqlite.Rows) { s.RemovedAt, s.HasProfile = relay.UnixMilli(r.Int(0)), r.Int(1) != 0 },
			"SELECT removed_at, EXISTS (SELECT 1 FROM profile WHERE mecha = id) FROM mecha WHERE id = ?", int64(id))
		if err != nil {
			return err
		}
		if s.Ages, err = pendingAges(x, id); err != nil {
			return err
		}
		if s.Leases, s.MoreLeases, err = leases(x, id); err != nil {
			return err
		}
		s.Keys, s.MoreKeys, err = keyPage(x, KeyQuery{Limit: keysShown}, "k.mecha = ?", int64(id))
		return err
	})
	return s, err
}

// pendingAges counts a Mecha's pending messages by PendingAges.
func pendingAges(x *engine.Rx, id relay.MechaNumber) (ages []int, err error) {
	end := int64(math.MaxInt64)
	for n := range len(PendingAges) + 1 {
		begin := relay.Position(0)
		if n < len(PendingAges) {
			begin = relay.PositionAt(x.Now.Add(-PendingAges[n]))
		}
		pending, args, err := mailbox.Pending(x, id, begin, MaxCounted+1)
		if err != nil {
			return nil, err
		}
		rows, err := x.C.Number("SELECT count(*) FROM ("+pending+") p CROSS JOIN message m ON m.position = p.position "+
			"AND m.open = 1 AND (m.expires_at IS NULL OR m.expires_at > ?) WHERE p.position < ?",
			append(args, x.Now.UnixMilli(), end)...)
		if err != nil {
			return nil, err
		}
		ages, end = append(ages, int(min(rows, MaxCounted))), int64(begin)
	}
	return ages, nil
}

// mechaLeases are the leases in a number of rows of the Mecha, up to a number of leases.
const mechaLeases = `SELECT a.message, a.number, a.since, a.until, a.key IS NOT NULL, a.worker, k.public_id, k.label,
		u.last_used_at FROM (SELECT * FROM attempt INDEXED BY attempt_recipient WHERE recipient = ? LIMIT ?) a
		LEFT JOIN mecha_key k ON k.id = a.key LEFT JOIN key_use u ON u.key = a.key WHERE a.until IS NOT NULL ORDER BY a.until,
		a.message LIMIT ?`

// leases lists the messages that workers of a Mecha hold, or that it has deferred; the first to
// end comes first.
func leases(x *engine.Rx, id relay.MechaNumber) (list []Lease, more bool, err error) {
	r := x.C.Query(mechaLeases, int64(id), int64(leasesRead), int64(leasesShown+1))
	return engine.Page(r, leasesShown, func(r *sqlite.Rows) (Lease, error) {
		return Lease{Message: x.IDs.Message(relay.Position(r.Int(0))), Attempt: int(r.Int(1)),
			Since: relay.Position(r.Int(2)).Time(), Until: relay.UnixMilli(r.Int(3)), Claimed: r.Int(4) != 0, Worker: r.Text(5),
			Key: relay.KeyID(r.Text(6)), Label: r.Text(7), KeyUsed: relay.UnixMilli(r.Int(8))}, nil
	})
}

// MechaHour counts what a Mecha received, sent and acknowledged since a time, in spans of the
// given length. It reads a bounded number of its newest messages.
func (i Inspector) MechaHour(id relay.MechaNumber, since time.Time, span time.Duration) (h MechaHour, err error) {
	h = MechaHour{From: since}
	err = i.Point(context.Background(), func(x *engine.Rx) error {
		for _, side := range []struct {
			of relay.Direction
			to *map[int64]int
		}{{relay.In, &h.In}, {relay.Out, &h.Out}} {
			*side.to = map[int64]int{}
			positions, args, err := messages.NewestOf(x, id, side.of, relay.PositionFrom(since), hourRows)
			if err != nil {
				return err
			}
			rows, first := 0, relay.Position(0)
			r := x.C.Query("SELECT (position >> 12) / ?, count(*), min(position) FROM ("+positions+") GROUP BY 1 ORDER BY 1",
				append([]any{span.Milliseconds()}, args...)...)
			for r.Next() {
				if first == 0 {
					first = relay.Position(r.Int(2))
				}
				(*side.to)[r.Int(0)] = int(r.Int(1))
				rows += int(r.Int(1))
			}
			if err := r.Close(); err != nil {
				return err
			}
			if rows == hourRows && first.Time().After(h.From) {
				h.From = first.Time()
			}
		}
		return acksOf(x, &h, id, since, span)
	})
	return h, err
}

// acksOf counts the acknowledgements of the newest messages that a Mecha received.
func acksOf(x *engine.Rx, h *MechaHour, id relay.MechaNumber, since time.Time, span time.Duration) error {
	positions, args, err := messages.NewestOf(x, id, relay.In, 0, ackRows)
	if err != nil {
		return err
	}
	h.Acked = map[int64]int{}
	last := int64(0)
	r := x.C.Query("SELECT m.acknowledged_at / ?, count(m.acknowledged_at), max(m.ack) FROM ("+positions+
		") p CROSS JOIN message m ON m.position = p.position WHERE m.ack IS NOT NULL GROUP BY 1",
		append([]any{span.Milliseconds()}, args...)...)
	for r.Next() {
		if last = max(last, r.Int(2)); !r.Null(0) && r.Int(0) >= since.UnixMilli()/span.Milliseconds() {
			h.Acked[r.Int(0)] = int(r.Int(1))
		}
	}
	if err := r.Close(); err != nil || last == 0 {
		return err
	}
	step, _, err := look.ReadStep(x, last)
	if err != nil {
		return err
	}
	of, err := x.C.Number("SELECT message FROM receipt WHERE position = ?", last)
	h.LastAck, h.Acking = &step, x.IDs.Message(relay.Position(of))
	return err
}

// profilesAfter returns the query for the next Mechas, and whether one of the conditions refuses each.
func profilesAfter(conditions string) string {
	return "SELECT m.id, m.address, FALSE" + conditions + " FROM mecha m LEFT JOIN profile p ON p.mecha = m.id " +
		"WHERE m.address > ? AND m.removed_at IS NULL ORDER BY m.address LIMIT ?"
}

// Profiles reads a page of the directory, in pieces, each of which sees the file as of its turn. It
// reads 20,000 Mechas at most; then the page may have fewer than Limit and a Next. The end of ctx
// ends it between two pieces.
func (i Inspector) Profiles(ctx context.Context, q ProfileQuery) (p ProfilePage, err error) {
	where, words := "", []any{}
	for _, w := range q.Words {
		where += " OR NOT (instr(lower(m.address), ?) OR coalesce(instr(lower(p.body), ?), 0))"
		words = append(words, strings.ToLower(w), strings.ToLower(w))
	}
	after := q.After
	for looked := 0; looked < maxProfiles; looked += profileRows {
		rows, full := 0, false
		err := i.Scan(ctx, func(x *engine.Rx) error {
			var found []relay.MechaNumber
			r := x.C.Query(profilesAfter(where),
				append(words, string(after), int64(profileRows))...)
			for ; r.Next(); rows++ {
				if r.Int(2) == 0 && len(p.List)+len(found) == q.Limit {
					full = true
					break
				}
				if after = relay.Address(r.Text(1)); r.Int(2) == 0 {
					found = append(found, relay.MechaNumber(r.Int(0)))
				}
			}
			if err := r.Close(); err != nil {
				return err
			}
			list, err := listed(x, found)
			p.List = append(p.List, list...)
			return err
		})
		if err != nil {
			return p, err
		}
		if full {
			p.Next = after
			return p, nil
		}
		if rows < profileRows {
			return p, nil
		}
	}
	p.Next = after
	return p, nil
}

// Listed reads the Mechas with these numbers, without their cards. Removed and unknown ones are
// left out.
func (i Inspector) Listed(ids []relay.MechaNumber) ([]Listed, error) {
	return look.See(i, func(x *engine.Rx) ([]Listed, error) { return listed(x, ids) })
}

func listed(x *engine.Rx, ids []relay.MechaNumber) (all []Listed, err error) {
	var late overview // the newest messages
	if err := late.readUnindexed(x, 0); err != nil {
		return nil, err
	}
	for _, id := range ids {
		some, err := directory.Entries(x, false, "WHERE m.id = ? AND m.removed_at IS NULL", int64(id))
		if err != nil {
			return nil, err
		}
		for _, e := range some {
			_, seen, err := late.seen(x, id)
			if err != nil {
				return nil, err
			}
			all = append(all, Listed{Entry: e, LastSeen: seen})
		}
	}
	return all, nil
}
