package browse

import (
	"cmp"
	"context"
	"slices"
	"time"

	"relay/db/internal/engine"
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
	First, Last              time.Time       // of the first and last message, or zero
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

// statsView is how long a view of Stats lasts; shorter in tests.
var statsView = 20 * time.Millisecond

// Stats counts the content of the store. It reads the row of every message that exists when it
// begins, about a million a second, in many short views: so each message counts once, in its state
// when it is read. While a server runs, it pauses between them (scan), and takes several times as
// long. The end of ctx ends it between two views, with the error of ctx.
func (i Inspector) Stats(ctx context.Context) (Stats, error) {
	c, view := statsCount{busy: map[int64]*Busy{}}, i.Point
	if i.Server() != NotServed {
		view = i.Scan
	}
	views := func(each ...func(*engine.Rx) error) error {
		for _, f := range each {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := view(ctx, f); err != nil {
				return err
			}
		}
		return nil
	}
	err := views(c.findLast, c.countMechas, c.countKept)
	for err == nil && c.read < c.last {
		err = views(c.countMessages)
	}
	if err == nil {
		err = views(c.findBusiest, c.measure)
	}
	return c.Stats, err
}

// statsCount is what Stats has counted.
type statsCount struct {
	Stats
	busy       map[int64]*Busy // by the number of the Mecha
	unnamed    []int64         // the Mechas of busy that have no address yet
	read, last relay.Position  // the message that was read last; the last message to read
	oldest     relay.Position  // of Oldest
	oldestFor  *Busy
}

func (s *statsCount) countMechas(x *engine.Rx) error {
	_, err := x.C.Row(func(r *sqlite.Rows) { s.Mechas, s.Removed = int(r.Int(0)), int(r.Int(1)) },
		"SELECT count(*) FILTER (WHERE removed_at IS NULL), count(removed_at) FROM mecha")
	if err != nil {
		return err
	}
	if _, err := x.C.Row(func(r *sqlite.Rows) { s.Profiles = int(r.Int(0)) }, "SELECT count(*) FROM profile"); err != nil {
		return err
	}
	_, err = x.C.Row(func(r *sqlite.Rows) {
		s.Keys, s.KeysExpired, s.KeysRevoked = int(r.Int(0)), int(r.Int(1)), int(r.Int(2))
	},
		`SELECT count(*) FILTER (WHERE revoked_at IS NULL AND coalesce(expires_at, ?1 + 1) > ?1),
			count(*) FILTER (WHERE revoked_at IS NULL AND expires_at <= ?1), count(revoked_at) FROM mecha_key`,
		x.Now.UnixMilli())
	return err
}

// countKept counts the rows that are kept besides messages (PROTOCOL §8).
func (s *statsCount) countKept(x *engine.Rx) error {
	for _, c := range []struct {
		table string
		to    *int
	}{{"word", &s.Words}, {"dormant", &s.Dormant}, {"kept_nonce", &s.KeptNonces}, {"unlisted", &s.Unlisted}} {
		n, err := x.C.Number("SELECT count(*) FROM " + c.table)
		if err != nil {
			return err
		}
		*c.to = int(n)
	}
	return nil
}

func (s *statsCount) findLast(x *engine.Rx) error {
	last, err := x.C.Number("SELECT coalesce(max(position), 0) FROM message")
	s.last = relay.Position(last)
	return err
}

// countMessages reads messages for statsView, but some of them at least. Pending messages whose
// ExpiresAt has come count as expired.
func (s *statsCount) countMessages(x *engine.Rx) error {
	const rows = 256 // between two checks of the clock
	began := time.Now()
	r := x.C.Query(
		`SELECT position, sender, recipient, CASE WHEN state < 2 AND expires_at <= ?3 THEN 3 ELSE state END, payload_bytes
		FROM message WHERE position > ?1 AND position <= ?2 ORDER BY position`,
		int64(s.read), int64(s.last), x.Now.UnixMilli())
	for n := 1; r.Next(); n++ {
		s.count(r)
		if n%rows == 0 && time.Since(began) >= statsView {
			return cmp.Or(r.Close(), s.nameBusy(x))
		}
	}
	s.read = s.last // it may have been removed since
	return cmp.Or(r.Close(), s.nameBusy(x))
}

// count counts a message.
func (s *statsCount) count(r *sqlite.Rows) {
	s.read = relay.Position(r.Int(0))
	if s.Messages++; s.Messages == 1 {
		s.First = s.read.Time()
	}
	s.Last = s.read.Time()
	s.PayloadBytes += r.Int(4)
	from, to := s.busyOf(r.Int(1)), s.busyOf(r.Int(2))
	from.Sent++
	to.Received++
	switch r.Int(3) {
	case 0:
		s.Queued++
	case 1:
		s.Delivered++
	case 2:
		s.Acknowledged++
		return
	default:
		s.Expired++
		return
	}
	to.Pending++
	if s.oldest == 0 {
		s.oldest, s.oldestFor = s.read, to
	}
}

func (s *statsCount) busyOf(mecha int64) *Busy {
	b := s.busy[mecha]
	if b == nil {
		b = &Busy{}
		s.busy[mecha] = b
		s.unnamed = append(s.unnamed, mecha)
	}
	return b
}

// nameBusy fills in the addresses of the counted Mechas. It does so in the view that counted them,
// because the row of a removed Mecha may be deleted later, with its last message.
func (s *statsCount) nameBusy(x *engine.Rx) (err error) {
	for _, id := range s.unnamed {
		if s.busy[id].Mecha, err = engine.Address(x, id); err != nil {
			return err
		}
	}
	s.unnamed = s.unnamed[:0]
	return nil
}

// findBusiest sorts the counted Mechas, and sets the oldest message.
func (s *statsCount) findBusiest(x *engine.Rx) error {
	for _, b := range s.busy {
		s.Busiest = append(s.Busiest, *b)
	}
	slices.SortFunc(s.Busiest, func(a, b Busy) int {
		return cmp.Or(cmp.Compare(b.Sent+b.Received, a.Sent+a.Received), cmp.Compare(a.Mecha, b.Mecha))
	})
	s.Busiest = s.Busiest[:min(len(s.Busiest), busiest)]
	if s.oldest != 0 {
		s.Oldest, s.OldestAt, s.OldestFor = x.IDs.Message(s.oldest), s.oldest.Time(), s.oldestFor.Mecha
	}
	return nil
}

func (s *statsCount) measure(x *engine.Rx) error {
	var pages, free, size int64
	for q, to := range map[string]*int64{"PRAGMA page_count": &pages, "PRAGMA freelist_count": &free,
		"PRAGMA page_size": &size, "PRAGMA user_version": &s.SchemaVersion} {
		if _, err := x.C.Row(func(r *sqlite.Rows) { *to = r.Int(0) }, q); err != nil {
			return err
		}
	}
	s.FileBytes, s.FreeBytes = pages*size, free*size
	return nil
}
