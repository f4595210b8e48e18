package survey

import (
	"context"
	"encoding/base32"
	"encoding/binary"
	"slices"
	"strings"
	"time"

	"relay/db/file"
	"relay/db/internal/engine"
	"relay/db/internal/mailbox"
	"relay/db/internal/sqlite"
	"relay/db/look/backlog"
	"relay/db/look/browse"
	"relay/db/relay"
)

const (
	overviewMechas = 1000                   // rows of mecha that an Overview reads in one view
	overviewLate   = 40_000                 // messages missing from received that it reads
	minLooked      = 4                      // the minimum share of a Mecha of overviewLooked
	overviewView   = 10 * time.Millisecond  // after which it ends a view
	overviewHaste  = 100 * time.Millisecond // how long its views follow each other without a pause
)

// These are variables, so that tests can have small shares of few messages.
var (
	overviewRows   = 100_000 // rows of received that an Overview counts, with an equal share for each Mecha
	overviewLooked = 5000    // messages that it reads, likewise
	minCounted     = 20      // the minimum share of a Mecha of overviewRows
)

// Inspector is a browse.Inspector with the reads of this package.
type Inspector struct{ browse.Inspector }

// Overview summarizes pending messages by recipient. Messages that were accepted before late
// count in Box.Late. Its cost is bounded: it counts up to MaxCounted pending messages of a
// Mecha, or fewer if many Mechas have many, and reads the oldest of them. It reads in pieces,
// each of which sees the file as of its turn. The end of ctx ends it between two pieces. It
// pauses between them (Scan) only if it takes long, since somebody waits for it. The boxes are
// not sorted.
func (i Inspector) Overview(ctx context.Context, late time.Time) (o Overview, err error) {
	v, began := overview{late: relay.PositionAt(late)}, time.Now()
	view := func(f func(*engine.Rx) error) error {
		if time.Since(began) < overviewHaste && ctx.Err() == nil {
			return i.Point(ctx, f)
		}
		return i.Scan(ctx, f)
	}
	err = view(func(x *engine.Rx) error {
		n, err := x.C.Number("SELECT count(*) FROM mecha WHERE removed_at IS NULL")
		if o.Mechas = int(n); err != nil {
			return err
		}
		return v.readUnindexed(x, 0)
	})
	for from, more := int64(0), true; more && err == nil; {
		err = view(func(x *engine.Rx) (err error) {
			from, more, err = v.findWaiting(x, from)
			return err
		})
	}
	if err != nil {
		return o, err
	}
	o.At, o.Serving, o.DiskFree = time.Now(), i.Server(), backlog.SpaceOf(i.Path()).DiskFree
	v.counted = min(max(overviewRows/max(len(v.waiting), 1), minCounted), MaxCounted)
	v.looked = min(max(overviewLooked/max(len(v.waiting), 1), minLooked), v.counted)
	for len(v.waiting) > 0 {
		err := view(func(x *engine.Rx) error {
			for began := time.Now(); len(v.waiting) > 0 && time.Since(began) < overviewView; v.waiting = v.waiting[1:] {
				b, err := v.box(x, v.waiting[0])
				if err != nil {
					return err
				}
				if o.Pending, o.More = o.Pending+b.Pending, o.More || b.More; b.Pending > 0 {
					o.Boxes = append(o.Boxes, b)
				}
			}
			return nil
		})
		if err != nil {
			return o, err
		}
	}
	return o, nil
}

// overview is a running Overview.
type overview struct {
	late      relay.Position
	upto      relay.Position // received has all messages up to here
	unindexed map[int64][]waitingMessage
	sent      map[int64]relay.Position // each Mecha's newest sent message that the index tables lack
	cut       bool                     // more are missing
	waiting   []int64                  // the Mechas whose boxes are still to be made
	counted   int                      // rows of received that are counted for each
	looked    int                      // messages that are read for each
}

// waitingMessage has the columns of a pending message that a Box needs.
type waitingMessage struct {
	position                         relay.Position
	dead, overdue, claimed, deferred bool // dead says that its ExpiresAt has come
}

// ofWaiting are the columns of a waitingMessage, of a message m and its row a of attempt. Its
// argument ?1 is now, in Unix ms.
const ofWaiting = "m.position, coalesce(m.expires_at <= ?1, 0), coalesce(m.ack_by <= ?1, 0), a.key IS NOT NULL, " +
	"a.key IS NULL AND a.until IS NOT NULL"

func readWaiting(r *sqlite.Rows) waitingMessage {
	return waitingMessage{relay.Position(r.Int(0)), r.Int(1) != 0, r.Int(2) != 0, r.Int(3) != 0, r.Int(4) != 0}
}

// unindexedWaiting are the messages to or from a Mecha, or with 0 all, after a position.
const unindexedWaiting = "SELECT " + ofWaiting + `, m.recipient, p.open, m.sender
	FROM (SELECT position, open FROM message WHERE position > ?2 AND (?3 = 0 OR ?3 IN (recipient, sender))
		ORDER BY position LIMIT ?4) p
	CROSS JOIN message m ON m.position = p.position LEFT JOIN attempt a ON a.message = p.position AND p.open = 1`

// readUnindexed reads the messages missing from received, of a Mecha, or of all with 0. It reads
// them once, since no index has them.
func (v *overview) readUnindexed(x *engine.Rx, id int64) (err error) {
	if v.upto, err = mailbox.IndexedUpto(x); err != nil {
		return err
	}
	v.unindexed, v.sent = map[int64][]waitingMessage{}, map[int64]relay.Position{}
	rows := 0
	r := x.C.Query(unindexedWaiting, x.Now.UnixMilli(), int64(v.upto), id, int64(overviewLate))
	for ; r.Next(); rows++ {
		if to := r.Int(5); r.Int(6) != 0 {
			v.unindexed[to] = append(v.unindexed[to], readWaiting(r))
		}
		v.sent[r.Int(7)] = relay.Position(r.Int(0))
	}
	v.cut = rows == overviewLate
	return r.Close()
}

// seen reads how many live keys a Mecha has, and when it was last seen.
func (v *overview) seen(x *engine.Rx, id relay.MechaNumber) (liveKeys int, at time.Time, err error) {
	h, err := browse.HealthOf(x, id)
	if err == nil {
		at, err = browse.LastActivity(x, h.Used, max(h.Sent, v.sent[int64(id)]))
	}
	return h.LiveKeys, at, err
}

// mechasWaiting are the next Mechas, and whether received has a pending message of them.
const mechasWaiting = "SELECT id, EXISTS (SELECT 1 FROM received WHERE mecha = id AND open = 1) FROM mecha " +
	"WHERE id > ? ORDER BY id LIMIT ?"

// findWaiting finds the Mechas after a number for which messages wait, up to overviewMechas.
func (v *overview) findWaiting(x *engine.Rx, from int64) (last int64, more bool, err error) {
	last = from
	rows := 0
	r := x.C.Query(mechasWaiting, from, int64(overviewMechas))
	for ; r.Next(); rows++ {
		if last = r.Int(0); r.Int(1) != 0 || len(v.unindexed[last]) > 0 {
			v.waiting = append(v.waiting, last)
		}
	}
	return last, rows == overviewMechas, r.Close()
}

// box makes the Box of one Mecha alone.
func box(x *engine.Rx, id relay.MechaNumber, late relay.Position) (b Box, err error) {
	v := overview{late: late, counted: MaxCounted, looked: MaxCounted}
	if err := v.readUnindexed(x, int64(id)); err != nil {
		return b, err
	}
	return v.box(x, int64(id))
}

const (
	waitingOf = "SELECT position FROM received WHERE mecha = ?2 AND open = 1 AND position <= ?3 " +
		"ORDER BY position LIMIT ?4"
	countWaiting  = "SELECT count(*), count(*) FILTER (WHERE position < ?1) FROM (" + waitingOf + ")"
	oldestWaiting = "SELECT " + ofWaiting + " FROM (" + waitingOf +
		") p CROSS JOIN message m ON m.position = p.position LEFT JOIN attempt a ON a.message = p.position"
	countAttempts = `SELECT count(key), count(*) - count(key)
		FROM (SELECT message, key, until FROM attempt INDEXED BY attempt_recipient WHERE recipient = ?2 LIMIT ?3) a
		CROSS JOIN message m ON m.position = a.message AND (m.expires_at IS NULL OR m.expires_at > ?1)
		WHERE a.until IS NOT NULL`
)

// box counts what waits for a Mecha.
func (v *overview) box(x *engine.Rx, id int64) (b Box, err error) {
	b.Number = relay.MechaNumber(id)
	if b.Mecha, err = engine.Address(x, id); err != nil {
		return b, err
	}
	h, err := browse.HealthOf(x, b.Number)
	if b.Removed, b.LiveKeys = h.Removed, h.LiveKeys; err == nil {
		b.LastSeen, err = browse.LastActivity(x, h.Used, max(h.Sent, v.sent[id]))
	}
	if err != nil {
		return b, err
	}
	rows := 0
	_, err = x.C.Row(func(r *sqlite.Rows) { rows, b.Late = int(r.Int(0)), int(r.Int(1)) }, countWaiting, int64(v.late), id,
		int64(v.upto), int64(v.counted+1))
	if err != nil {
		return b, err
	}
	if b.More = rows > v.counted || v.cut; rows > v.counted {
		rows, b.Late = v.counted, min(b.Late, v.counted)
	}
	oldest, err := v.oldest(x, id, v.looked)
	if err == nil && len(oldest) == v.looked && allDead(oldest) {
		oldest, err = v.oldest(x, id, v.counted)
	}
	if err != nil {
		return b, err
	}
	b.Pending = rows
	v.add(&b, x.IDs, oldest, true)
	v.add(&b, x.IDs, v.unindexed[id], false)
	if b.Pending > MaxCounted {
		b.Pending, b.Late, b.More = MaxCounted, min(b.Late, MaxCounted), true
	}
	if rows > len(oldest) { // there are others, which may be held or deferred
		_, err = x.C.Row(func(r *sqlite.Rows) { b.Held, b.Deferred = int(r.Int(0)), int(r.Int(1)) }, countAttempts,
			x.Now.UnixMilli(), id, int64(v.counted))
	}
	return b, err
}

// add adds messages to a box, in order. counted says that Pending and Late count them already,
// even the dead ones.
func (v *overview) add(b *Box, ids *relay.IDs, all []waitingMessage, counted bool) {
	for _, m := range all {
		if m.dead && !counted {
			continue
		}
		n := one(!counted) - one(m.dead)
		if b.Pending += n; m.position < v.late {
			b.Late += n
		}
		if m.dead {
			continue
		}
		if b.Oldest == "" {
			b.Oldest, b.OldestAt = ids.Message(m.position), m.position.Time()
		}
		b.Overdue, b.Held, b.Deferred = b.Overdue+one(m.overdue), b.Held+one(m.claimed), b.Deferred+one(m.deferred)
	}
}

// oldest reads the oldest messages of a Mecha that received has.
func (v *overview) oldest(x *engine.Rx, id int64, limit int) ([]waitingMessage, error) {
	return engine.All(x.C.Query(oldestWaiting, x.Now.UnixMilli(), id, int64(v.upto), int64(limit)), readWaiting)
}

func allDead(list []waitingMessage) bool {
	return !slices.ContainsFunc(list, func(m waitingMessage) bool { return !m.dead })
}

// one returns 1 for true.
func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

// The queries of FileState.
const (
	firstMessage   = "SELECT min(position) FROM message"
	lastMessage    = "SELECT max(position) FROM message"
	lastReceipt    = "SELECT max(position) FROM receipt"
	lastAct        = "SELECT at FROM audit ORDER BY id DESC LIMIT 1"
	countUnindexed = "SELECT count(*) FROM (SELECT 1 FROM message m WHERE position > ? AND NOT EXISTS (" +
		file.IndexedAsReceived + ") LIMIT ?)"
)

// FileState reads the state of the file.
func (i Inspector) FileState() (s FileState, err error) {
	space := backlog.SpaceOf(i.Path())
	s.Path, s.File, s.Log, s.DiskFree = i.Path(), space.File, space.Log, space.DiskFree
	err = i.Point(context.Background(), func(x *engine.Rx) error {
		var free, size, version, first, last, receipt, act, unindexed int64
		for _, n := range []struct {
			to    *int64
			query string
		}{
			{&free, "PRAGMA freelist_count"}, {&size, "PRAGMA page_size"}, {&version, "PRAGMA user_version"},
			{&first, firstMessage}, {&last, lastMessage}, {&receipt, lastReceipt}, {&act, lastAct},
		} {
			if _, err := x.C.Row(func(r *sqlite.Rows) { *n.to = r.Int(0) }, n.query); err != nil {
				return err
			}
		}
		upto, err := mailbox.IndexedUpto(x)
		if err != nil {
			return err
		}
		_, err = x.C.Row(func(r *sqlite.Rows) { unindexed = r.Int(0) }, countUnindexed, int64(upto), int64(MaxCounted))
		s.Free, s.SchemaVersion, s.Unindexed, s.LastEvent, s.LastAct = free*size, int(version), int(unindexed),
			relay.Position(max(last, receipt)), relay.UnixMilli(act)
		if last != 0 {
			s.First, s.Last = relay.Position(first).Time(), relay.Position(last).Time()
		}
		return err
	})
	return s, err
}

// Name makes a name of 16 letters and digits, 80 bits, for a purpose. It follows from the store's
// secret: every process that reads the file gets the same name, and no one else can guess it.
func (i Inspector) Name(purpose string) string {
	b := binary.BigEndian.AppendUint64(nil, uint64(i.IDs.Hash('n', 0, []byte(purpose))))
	b = binary.BigEndian.AppendUint64(b, uint64(i.IDs.Hash('n', 1, []byte(purpose))))
	return strings.ToLower(base32.StdEncoding.EncodeToString(b[:10]))
}
