package db

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"relay/db/file"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// Stats counts the content of a store.
type Stats struct {
	Mechas, Removed          int // registered Mechas; removed ones
	Profiles                 int
	Keys                     int // neither revoked nor expired
	KeysRevoked, KeysExpired int
	Messages                 int
	Queued, Delivered        int
	Acknowledged, Expired    int
	PayloadBytes             int64
	First, Last              time.Time       // of the first and last message; zero if there is none
	Oldest                   relay.MessageID // the oldest pending message; "" if none is pending
	OldestAt                 time.Time       // when Oldest was accepted
	OldestFor                relay.Address   // the recipient of Oldest
	Busiest                  []Busy          // up to ten Mechas, those with the most messages first
	Words                    int             // types, priorities, versions, statuses, labels
	Dormant                  int             // conversations without a message
	KeptNonces               int             // of writes whose rows are gone
	Unlisted                 int             // removed messages whose rows in the mailboxes are still to be deleted
	FileBytes, FreeBytes     int64           // of the file; of its unused pages
	SchemaVersion            int64
}

// Busy counts the messages that a Mecha has sent, received, and has pending.
type Busy struct {
	Mecha                   relay.Address
	Sent, Received, Pending int
}

const busiest = 10

// Stats counts the content of the store. It reads all messages, about a million a
// second, in several views.
func (i *Inspector) Stats() (s Stats, err error) {
	for _, f := range []func(*rx, *Stats) error{(*rx).countMechas, (*rx).countMessages, (*rx).findOldest, (*rx).findBusiest, (*rx).countKept, (*rx).measure} {
		if err = i.view(func(x *rx) error { return f(x, &s) }); err != nil {
			return s, err
		}
	}
	return s, nil
}

func (x *rx) countMechas(s *Stats) error {
	_, err := x.c.Row(func(r *sqlite.Rows) { s.Mechas, s.Removed = int(r.Int(0)), int(r.Int(1)) },
		"SELECT count(*) FILTER (WHERE removed_at IS NULL), count(removed_at) FROM mecha")
	if err != nil {
		return err
	}
	if _, err := x.c.Row(func(r *sqlite.Rows) { s.Profiles = int(r.Int(0)) }, "SELECT count(*) FROM profile"); err != nil {
		return err
	}
	_, err = x.c.Row(func(r *sqlite.Rows) {
		s.Keys, s.KeysExpired, s.KeysRevoked = int(r.Int(0)), int(r.Int(1)), int(r.Int(2))
	},
		`SELECT count(*) FILTER (WHERE revoked_at IS NULL AND coalesce(expires_at, ?1 + 1) > ?1),
			count(*) FILTER (WHERE revoked_at IS NULL AND expires_at <= ?1), count(revoked_at) FROM mecha_key`, x.now.UnixMilli())
	return err
}

// countKept counts what is kept besides messages (PROTOCOL §8).
func (x *rx) countKept(s *Stats) error {
	for _, c := range []struct {
		table string
		to    *int
	}{{"word", &s.Words}, {"dormant", &s.Dormant}, {"kept_nonce", &s.KeptNonces}, {"unlisted", &s.Unlisted}} {
		n, err := x.c.Number("SELECT count(*) FROM " + c.table)
		if err != nil {
			return err
		}
		*c.to = int(n)
	}
	return nil
}

// countMessages counts messages by state. Pending messages whose ExpiresAt has come
// count as expired.
func (x *rx) countMessages(s *Stats) error {
	var first, last relay.Position
	_, err := x.c.Row(func(r *sqlite.Rows) {
		s.Messages, s.Queued, s.Delivered, s.Acknowledged = int(r.Int(0)), int(r.Int(1)), int(r.Int(2)), int(r.Int(3))
		s.PayloadBytes, first, last = r.Int(4), relay.Position(r.Int(5)), relay.Position(r.Int(6))
	}, `SELECT count(*), count(*) FILTER (WHERE state = 0 AND coalesce(expires_at, ?1 + 1) > ?1),
		count(*) FILTER (WHERE state = 1 AND coalesce(expires_at, ?1 + 1) > ?1), count(*) FILTER (WHERE state = 2),
		sum(payload_bytes), min(position), max(position) FROM message`, x.now.UnixMilli())
	s.Expired = s.Messages - s.Queued - s.Delivered - s.Acknowledged
	if s.Messages > 0 {
		s.First, s.Last = first.Time(), last.Time()
	}
	return err
}

func (x *rx) findOldest(s *Stats) error {
	var oldest relay.Position
	_, err := x.c.Row(func(r *sqlite.Rows) { oldest = relay.Position(r.Int(0)) },
		"SELECT min(position) FROM message WHERE open = 1 AND coalesce(expires_at, ?1 + 1) > ?1", x.now.UnixMilli())
	if err != nil || oldest == 0 {
		return err
	}
	m, err := x.message(oldest)
	if err == nil && m != nil {
		s.Oldest, s.OldestAt, s.OldestFor = m.ID, m.CreatedAt, m.To
	}
	return err
}

// findBusiest counts the rows of `received` and `sent`, and the messages that they lack.
func (x *rx) findBusiest(s *Stats) error {
	all := map[int64]*Busy{}
	busy := func(id int64) *Busy {
		if all[id] == nil {
			all[id] = &Busy{}
		}
		return all[id]
	}
	upto, err := x.indexedUpto()
	if err != nil {
		return err
	}
	for _, q := range []string{
		"SELECT mecha, count(*), 0, 0 FROM sent WHERE position NOT IN (SELECT position FROM unlisted) GROUP BY mecha",
		"SELECT mecha, 0, count(*), count(*) * open FROM received WHERE position NOT IN (SELECT position FROM unlisted) GROUP BY mecha, open",
		"SELECT sender, count(*), 0, 0 FROM message m WHERE position > ? AND NOT EXISTS (" + file.IndexedAsSent + ") GROUP BY sender",
		"SELECT recipient, 0, count(*), sum(open) FROM message m WHERE position > ? AND NOT EXISTS (" + file.IndexedAsReceived + ") GROUP BY recipient",
	} {
		var args []any
		if strings.Contains(q, "?") {
			args = append(args, int64(upto))
		}
		r := x.c.Query(q, args...)
		for r.Next() {
			b := busy(r.Int(0))
			b.Sent += int(r.Int(1))
			b.Received += int(r.Int(2))
			b.Pending += int(r.Int(3))
		}
		if err := r.Close(); err != nil {
			return err
		}
	}
	for id, b := range all {
		address, err := x.address(id)
		if err != nil {
			return err
		}
		b.Mecha = address
		s.Busiest = append(s.Busiest, *b)
	}
	slices.SortFunc(s.Busiest, func(a, b Busy) int {
		return cmp.Or(cmp.Compare(b.Sent+b.Received, a.Sent+a.Received), cmp.Compare(a.Mecha, b.Mecha))
	})
	s.Busiest = s.Busiest[:min(len(s.Busiest), busiest)]
	return nil
}

func (x *rx) measure(s *Stats) error {
	var pages, free, size int64
	for q, to := range map[string]*int64{"PRAGMA page_count": &pages, "PRAGMA freelist_count": &free,
		"PRAGMA page_size": &size, "PRAGMA user_version": &s.SchemaVersion} {
		if _, err := x.c.Row(func(r *sqlite.Rows) { *to = r.Int(0) }, q); err != nil {
			return err
		}
	}
	s.FileBytes, s.FreeBytes = pages*size, free*size
	return nil
}
