package progress

import (
	"cmp"
	"context"
	"slices"
	"time"

	"relay/db/internal/engine"
	"relay/db/internal/mailbox"
	"relay/db/internal/messages"
	"relay/db/internal/readers"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// Several workers can share the messages of one Mecha (PROTOCOL §3, Claim). The table
// attempt has a row for each message that a worker holds, that was deferred, or that was
// redelivered. A message without a row is at its first attempt and free.

// ClaimMessages leases to a worker up to c.Limit pending messages of its Mecha that are
// neither claimed nor deferred, the oldest first, with their payloads. The leases are
// durable when it returns. It may return none. Errors: UnknownKey, KeyRevoked, KeyExpired,
// and those of every write. Any goroutine may call it.
func (p *Progress) ClaimMessages(ctx context.Context, c *relay.ClaimMessages) ([]relay.ClaimedMessage, error) {
	claimed, err := engine.Do[[]relay.ClaimedMessage](p.w, c)
	if err != nil || len(claimed) == 0 {
		return nil, err
	}
	kept := claimed[:0]
	turn := p.w.Readers.Scan(claimed[0].Recipient)
	turn.MaxWaiting = readers.AnyNumber // after a refusal, nobody would have the messages until the leases end
	err = p.w.ReadIn(ctx, turn, func(x *engine.Rx) error {
		for _, m := range claimed {
			body, found, err := messages.KeptPayload(x, m.Position)
			if err != nil {
				return err
			}
			if m.Payload = body; found {
				kept = append(kept, m)
			}
		}
		return nil
	})
	return kept, err
}

// DecideClaim takes leases, and returns the messages without their payloads.
func (p *Progress) DecideClaim(t *engine.Tx, c *relay.ClaimMessages) ([]relay.ClaimedMessage, error) {
	caller, err := p.directory.Caller(t, c.Key)
	if err != nil {
		return nil, err
	}
	free, err := p.free(t, caller.Mecha.Number, c)
	if err != nil {
		return nil, err
	}
	until := c.At.Add(c.Lease).Truncate(time.Millisecond)
	var claimed []relay.ClaimedMessage
	for i, f := range free {
		m, err := messages.At(&t.Rx, f.position)
		if err != nil {
			return nil, err
		}
		r := receipt{at: t.Position(c.At), detail: c.Worker, key: c.Key, notice: relay.NoticeClaimed, until: until}
		if i == 0 {
			r.nonce = c.Nonce
		}
		if err := p.addNotice(t, m, r); err != nil {
			return nil, err
		}
		if err := p.keepAttempt(t, m, messages.Attempt{Number: f.number, Until: until, Key: c.Key, Worker: c.Worker,
			Lease: c.Lease, Since: r.at, Again: f.again}); err != nil {
			return nil, err
		}
		m.Attempt = f.number
		claimed = append(claimed, relay.ClaimedMessage{Message: m, LeaseUntil: until})
	}
	p.claimed += len(claimed)
	return claimed, nil
}

// freeMessage is a pending message that can be claimed.
type freeMessage struct {
	position relay.Position
	number   int // the attempt that a claim begins; 1 if the message is fresh
	bytes    int64
	again    relay.Position // as in attempt
}

// A free message is fresh, or it has been freed. The index attempt_free has the freed
// messages. The fresh ones are read from the pending messages, from claimFrom on: so
// messages that are held or deferred cost a claim nothing, however many they are.

const (
	FreeAgain = `SELECT a.message, a.number, m.payload_bytes, a.again FROM attempt a INDEXED BY attempt_free
	CROSS JOIN message m ON m.position = a.message
	WHERE a.recipient = ? AND a.until IS NULL AND (m.expires_at IS NULL OR m.expires_at > ?) ORDER BY a.message LIMIT ?`
	// The fresh messages m at positions p.
	toClaim  = "SELECT p.position, m.payload_bytes, m.expires_at FROM "
	areFresh = `message m ON m.position = p.position LEFT JOIN attempt a ON a.message = p.position
	WHERE m.open = 1 AND a.message IS NULL`
)

// free finds the messages for a claim, the oldest first: up to its limit, and up to
// relay.PageBytes.
func (p *Progress) free(t *engine.Tx, id relay.MechaNumber, c *relay.ClaimMessages) ([]freeMessage, error) {
	list, next, err := p.fresh(t, id, c)
	if err != nil {
		return nil, err
	}
	r := t.C.Query(FreeAgain, int64(id), c.At.UnixMilli(), int64(c.Limit))
	for r.Next() {
		list = append(list, freeMessage{position: relay.Position(r.Int(0)), number: int(r.Int(1)), bytes: r.Int(2),
			again: relay.Position(r.Int(3))})
	}
	if err := r.Close(); err != nil {
		return nil, err
	}
	slices.SortFunc(list, func(a, b freeMessage) int { return cmp.Compare(a.position, b.position) })
	n, bytes := 0, int64(0)
	for ; n < min(len(list), c.Limit); n++ {
		if bytes += list[n].bytes; n > 0 && bytes > relay.PageBytes {
			break
		}
	}
	for _, f := range list[n:] {
		if f.number == 1 {
			next = min(next, f.position)
		}
	}
	p.claimFrom[id] = next
	return list[:n], nil
}

// fresh finds the oldest messages without a row in attempt, up to the limit of a claim. All
// others are at next or later.
func (p *Progress) fresh(
	t *engine.Tx, id relay.MechaNumber, c *relay.ClaimMessages,
) (list []freeMessage, next relay.Position, err error) {
	from, known := p.claimFrom[id]
	if !known {
		from, _ = p.Claims.Find(id)
	}
	pending, args, err := mailbox.Pending(&t.Rx, id, from, -1)
	if err != nil {
		return nil, 0, err
	}
	left := relay.Position(relay.MaxPosition)
	take := func(r *sqlite.Rows) {
		f := freeMessage{position: relay.Position(r.Int(0)), number: 1, bytes: r.Int(1)}
		if e := r.Int(2); e != 0 && e <= c.At.UnixMilli() { // a later claim with an earlier time can return it
			left = min(left, f.position)
			return
		}
		list = append(list, f)
	}
	r := t.C.Query(toClaim+"("+pending+") p CROSS JOIN "+areFresh, args...)
	for len(list) < c.Limit && r.Next() {
		take(r)
	}
	if err := r.Close(); err != nil {
		return nil, 0, err
	}
	next = t.Last + 1
	if len(list) == c.Limit {
		next = list[c.Limit-1].position + 1
	}
	return list, min(next, left), nil
}

// Claimable reports whether a claim would find a message now. It costs less than a claim that
// finds none. Any goroutine may call it.
func (p *Progress) Claimable(ctx context.Context, id relay.MechaNumber) (found bool, err error) {
	err = p.w.As(id).Point(ctx, func(x *engine.Rx) error {
		now := x.Now.UnixMilli()
		from, _ := p.Claims.Find(id) // 0 if that is unknown
		pending, args, err := mailbox.Pending(x, id, from, -1)
		if err != nil {
			return err
		}
		found, err = x.C.Row(nil, FreeAgain, int64(id), now, int64(1))
		if err == nil && !found {
			found, err = x.C.Row(nil, toClaim+"("+pending+") p CROSS JOIN "+areFresh+
				" AND (m.expires_at IS NULL OR m.expires_at > ?) LIMIT 1", append(args, now)...)
		}
		return err
	})
	return found, err
}

// maxClaims is how many Mechas Progress.Claims remembers with the position up to which
// their committed claims have come: each pending message before it has a row in attempt.
const maxClaims = 1 << 17

// TellAttempt adds the present attempt at a message to its Situation.
func TellAttempt(x *engine.Rx, s *relay.Situation) error {
	a, err := messages.AttemptOf(x, s.Message.Position)
	if a.Number > 1 {
		s.Begun = a.Since.Time()
	}
	if !a.Until.IsZero() {
		s.Until, s.Since, s.Claimed, s.Worker = a.Until, a.Since.Time(), a.Key != 0, a.Worker
	}
	return err
}

// keepAttempt writes the row of a message.
func (p *Progress) keepAttempt(t *engine.Tx, m *relay.Message, a messages.Attempt) error {
	p.attempts = true
	p.returns.expect(relay.MilliOf(a.Until))
	return t.C.Exec("INSERT OR REPLACE INTO attempt (message, recipient, number, until, key, worker, lease, since, "+
		"again) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
		int64(m.Position), int64(m.Recipient), int64(a.Number), sqlite.OrNull(relay.MilliOf(a.Until)),
		sqlite.OrNull(int64(a.Key)), sqlite.OrNull(a.Worker), sqlite.OrNull(a.Lease.Milliseconds()), int64(a.Since),
		sqlite.OrNull(int64(a.Again)))
}

// dropAttempt deletes the row of a message that is no longer pending.
func (room *Progress) dropAttempt(t *engine.Tx, p relay.Position) error {
	if !room.attempts {
		return nil
	}
	return t.C.Exec("DELETE FROM attempt WHERE message = ?", int64(p))
}

// progressed applies a progress status to the attempt: the key that has the lease renews
// it, and a deferral frees the message later. p is the receipt of the status.
func (room *Progress) progressed(t *engine.Tx, m *relay.Message, k *relay.Acknowledge, p relay.Position) error {
	switch {
	case k.RetryAfter != 0:
		a, err := messages.AttemptOf(&t.Rx, m.Position)
		if err != nil {
			return err
		}
		return room.keepAttempt(t, m, messages.Attempt{Number: a.Number,
			Until: k.At.Add(k.RetryAfter).Truncate(time.Millisecond), Since: p, Again: a.Again})
	case k.Status != relay.Processing || !room.attempts:
		return nil
	}
	a, err := messages.AttemptOf(&t.Rx, m.Position)
	if err != nil || a.Key != k.Key || a.Until.IsZero() {
		return err
	}
	if until := k.At.Add(a.Lease).Truncate(time.Millisecond); until.After(a.Until) {
		a.Until = until
	}
	return room.keepAttempt(t, m, a)
}

const earliestReturn = "SELECT min(until) FROM attempt INDEXED BY attempt_until WHERE until IS NOT NULL"

// endAttempts releases up to dueAtOnce messages whose lease has run out, or whose deferral
// is over.
func (p *Progress) endAttempts(t *engine.Tx, e *relay.EndAttempts) (NextDue, error) {
	due, next, err := p.dueMessages(t, e.At, "SELECT message, until FROM attempt INDEXED BY attempt_until "+
		"WHERE until IS NOT NULL ORDER BY until, message LIMIT ?")
	for _, m := range due {
		if err == nil {
			err = p.endAttempt(t, m, e)
		}
	}
	return next, err
}

func (room *Progress) endAttempt(t *engine.Tx, m *relay.Message, e *relay.EndAttempts) error {
	a, err := messages.AttemptOf(&t.Rx, m.Position)
	if err != nil {
		return err
	}
	limit, err := room.maxAttempts(t, m.Recipient, e)
	if err != nil {
		return err
	}
	p := t.Position(e.At)
	if m.State != relay.Expired && limit > 0 && a.Number >= limit {
		room.spent++
		return room.spend(t, m, p)
	}
	if err := room.addNotice(t, m, receipt{at: p, notice: relay.NoticeReturned}); err != nil {
		return err
	}
	next := messages.Attempt{Number: a.Number + 1, Since: p, Again: a.Again}
	if a.Key == 0 { // sockets show a message while a worker has a lease of it, but not while it is deferred
		next.Again = p
	}
	if err := room.keepAttempt(t, m, next); err != nil {
		return err
	}
	room.NoteChange(t, relay.Change{Receipt: p, At: p.Time(), Returned: next.Again == p}, m)
	room.returned++
	return nil
}

// maxAttempts returns the maximum number of attempts of a Mecha at a message, or 0
// without a limit. Its profile has precedence over the server's setting.
func (p *Progress) maxAttempts(t *engine.Tx, id relay.MechaNumber, e *relay.EndAttempts) (limit int, err error) {
	limit = e.MaxAttempts
	_, err = t.C.Row(func(r *sqlite.Rows) {
		if !r.Null(0) {
			limit = int(r.Int(0))
		}
	}, "SELECT json_extract(body, '$.max_attempts') FROM profile WHERE mecha = ?", int64(id))
	return limit, err
}

// attemptsSpent is the detail of the acknowledgement by which the relay gives up a message.
const attemptsSpent = "attempts spent"

// spend acknowledges a message as failed, because its attempts are spent.
func (room *Progress) spend(t *engine.Tx, m *relay.Message, p relay.Position) error {
	status, err := room.dictionary.Intern(t, "failed")
	if err != nil {
		return err
	}
	at := relay.FormatTime(p.Time())
	sought, err := room.addReceipt(t, m, receipt{at: p, state: relay.Acknowledged, status: status, clientTS: at,
		detail: attemptsSpent, notice: relay.NoticeSpent})
	if err != nil {
		return err
	}
	if m.DeliveredAt.IsZero() {
		m.DeliveredAt = p.Time()
	}
	m.AcknowledgedAt = p.Time()
	if err := room.setState(t, m, relay.Acknowledged, p, isAck, sought); err != nil {
		return err
	}
	m.Ack = &relay.Ack{Status: "failed", ClientTS: at, At: p.Time(), Detail: attemptsSpent}
	room.noteReceipt(t, m, p, p.Time(), true)
	return nil
}
