package check

import (
	"bytes"
	"crypto/sha256"
	"fmt"

	"relay/db/file"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// reasons makes a query for the rows of a table that meet one of the cases, each of the
// form WHEN condition THEN reason. The columns are key and the reason.
func reasons(key, cases, from string) string {
	return "SELECT key, reason FROM (SELECT " + key + " AS key, CASE " + cases + " END AS reason FROM " + from +
		") WHERE reason IS NOT NULL"
}

func (a *audit) checkPositions() error {
	err := a.ofRows(`SELECT 'clock_ahead ' || position || ' is not ahead of the clock' FROM clock_ahead
		WHERE position >> 12 <= at`)
	if err != nil {
		return err
	}
	for n, table := range ordered {
		err := a.ofRows(`SELECT '`+table+` ' || position || ' is not of a time' FROM `+table+` WHERE position <= 0
			OR position > ?`, int64(relay.MaxPosition))
		if err != nil {
			return err
		}
		for _, other := range ordered[:n] { // the smaller table is scanned, the larger one looked up
			err := a.ofRows(`SELECT '` + table + ` and ` + other + ` are both at ' || a.position FROM ` + table + ` a
				WHERE EXISTS (SELECT 1 FROM ` + other + ` b WHERE b.position = a.position)`)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// checkStates compares the columns of each message with each other (db/internal/progress/ack_sql.go
// sets them).
func (a *audit) checkStates() error {
	return a.ofMessages(reasons("position", `
		WHEN state NOT BETWEEN 0 AND 3 THEN 'there is no state ' || state
		WHEN open <> (state <= 1) THEN 'open is ' || open || ' in state ' || state
		WHEN state = 0 AND (delivered_at IS NOT NULL OR ack IS NOT NULL) THEN 'it is queued, but something has happened to it'
		WHEN state = 1 AND delivered_at IS NULL THEN 'it is delivered, but has no delivered_at'
		WHEN state = 2 AND (delivered_at IS NULL OR acknowledged_at IS NULL OR ack IS NULL)
			THEN 'it is acknowledged, but lacks a time or the acknowledgement'
		WHEN state <> 2 AND acknowledged_at IS NOT NULL THEN 'it has acknowledged_at in state ' || state
		WHEN state = 3 AND expires_at IS NULL THEN 'it has expired, but has no expires_at'
		WHEN state <> 0 AND receipt IS NULL THEN 'it is in state ' || state || ' without a receipt'
		WHEN delivered_at < position >> 12 THEN 'it was delivered before it was accepted'
		WHEN acknowledged_at < delivered_at THEN 'it was acknowledged before it was delivered'
		WHEN signed NOT IN (0, 1) THEN 'signed is ' || signed`, "message"))
}

func (a *audit) checkSenders() error {
	return a.ofMessages(`SELECT m.position, 'its key ' || k.public_id || ' is of another Mecha' FROM message m
		JOIN mecha_key k ON k.id = m.sender_key WHERE k.mecha <> m.sender`)
}

// checkConversations accepts conversations whose founding message retention has removed.
func (a *audit) checkConversations() error {
	return a.ofMessages(reasons("m.position", `
		WHEN m.conversation = 0 THEN 'its conversation is 0'
		WHEN m.conversation < 0 AND w.id IS NULL THEN 'the label of its conversation is missing: word ' || -m.conversation
		WHEN m.conversation >= m.position THEN 'its conversation began after it'
		WHEN f.conversation IS NOT NULL THEN 'its conversation was founded by a message of another conversation'`,
		`message m LEFT JOIN word w ON w.id = -m.conversation LEFT JOIN message f ON f.position = m.conversation
			WHERE m.conversation IS NOT NULL`))
}

// checkParticipants checks the rule of join and participates (db/internal/sending/send_sql.go): the
// sender and the recipient of the founding message take part without a row in `participant`; all
// others have a row.
func (a *audit) checkParticipants() error {
	err := a.ofRows(`SELECT 'Mecha ' || p.mecha || ' in conversation ' || p.conversation
			|| ': there is no such conversation'
		FROM participant p
		WHERE p.conversation = 0 OR p.conversation < 0 AND NOT EXISTS (SELECT 1 FROM word WHERE id = -p.conversation)`)
	if err != nil {
		return err
	}
	takesPart := func(mecha string) string {
		return `(EXISTS (SELECT 1 FROM participant p WHERE p.conversation = m.conversation AND p.mecha = ` + mecha + `)
			OR m.conversation > 0 AND ` + mecha + ` IN (f.sender, f.recipient))`
	}
	return a.ofMessages(reasons("m.position", `
		WHEN NOT `+takesPart("m.sender")+` THEN 'its sender does not take part in its conversation'
		WHEN NOT `+takesPart("m.recipient")+` THEN 'its recipient does not take part in its conversation'`,
		`message m LEFT JOIN message f ON f.position = m.conversation WHERE m.conversation IS NOT NULL`))
}

// checkReceipts compares each receipt with its message and with the receipt before it.
func (a *audit) checkReceipts() error {
	return a.each(func(r *sqlite.Rows) {
		a.finding.Fault(fmt.Sprintf("receipt %d of %s: %s", r.Int(0), a.message(r.Int(2)), r.Text(1)))
	}, `SELECT position, reason, message FROM (SELECT r.position, r.message, CASE
		WHEN m.position IS NULL THEN 'the message is missing'
		WHEN r.position <= r.message THEN 'it is older than the message'
		WHEN r.notice NOT BETWEEN 1 AND 5 THEN 'there is no notice ' || r.notice
		WHEN r.notice < 5 AND (r.status IS NOT NULL OR (r.key IS NULL) = (r.notice = 3)
			OR r.state IS NOT coalesce(p.state, 0)) THEN 'it is a notice, but has a status, a key or a state of its own'
		WHEN r.notice = 5 AND (r.status IS NULL OR r.key IS NOT NULL OR r.state <> 2)
			THEN 'it gives the message up, but does not acknowledge it'
		WHEN r.state NOT BETWEEN (r.notice IS NULL) AND 3 THEN 'there is no state ' || r.state
		WHEN r.previous IS NOT NULL AND p.position IS NULL THEN 'the one before it is missing'
		WHEN p.message <> r.message THEN 'the one before it is of another message'
		WHEN p.position >= r.position THEN 'the one before it is younger'
		WHEN p.state > r.state OR p.state = 3 AND r.notice IS NULL OR p.state = 2 AND r.state = 3
			THEN 'it takes the state from ' || p.state || ' to ' || r.state
		WHEN r.state = 2 AND r.status IS NULL AND r.notice IS NULL THEN 'it acknowledges without a status'
		WHEN (r.status IS NULL) <> (r.client_ts IS NULL) THEN 'it has only one of status and client_ts'
		WHEN r.state = 3 AND (r.status IS NOT NULL OR r.key IS NOT NULL) THEN 'it is an expiry, but has a status or a key'
		WHEN r.state <> 3 AND r.key IS NULL AND r.notice IS NULL
			THEN 'it has no key, though it is neither an expiry nor a notice'
		WHEN k.mecha <> m.recipient THEN 'the key ' || k.public_id || ' is not of the recipient'
		END AS reason
		FROM receipt r LEFT JOIN message m ON m.position = r.message LEFT JOIN receipt p ON p.position = r.previous
		LEFT JOIN mecha_key k ON k.id = r.key) WHERE reason IS NOT NULL`)
}

// link is one receipt in the chain of a message.
type link struct {
	position, message, state, previous int64
	status                             int64 // a word; 0 unless it acknowledges
}

func (a *audit) link(p int64) (l link, found bool, err error) {
	found, err = a.Conn.Row(func(r *sqlite.Rows) {
		l = link{position: p, message: r.Int(0), state: r.Int(1), previous: r.Int(2), status: r.Int(3)}
	}, "SELECT message, state, previous, status FROM receipt WHERE position = ?", p)
	return l, found, err
}

// checkChains follows the receipts of every message and compares the message with them. A
// chain only goes to older receipts of its message, so no receipt is counted twice. If it
// counts fewer than there are, some belong to no chain.
func (a *audit) checkChains() error {
	met, n := int64(0), int64(0)
	final := map[int64]bool{} // relay.IsFinal of a status
	fault := a.each(func(r *sqlite.Rows) { final[r.Int(0)] = true }, `SELECT id FROM word
		WHERE text IN ('completed', 'failed', 'rejected')`)
	err := a.each(func(r *sqlite.Rows) {
		if n++; n%4096 == 0 {
			a.progress(n, a.result.Messages)
		}
		if r.Null(4) && r.Null(6) || fault != nil {
			return // no receipts; checkStates checks the rest
		}
		var reason string
		var walked int64
		reason, walked, fault = a.walk(r, final)
		if met += walked; reason != "" {
			a.finding.Fault(a.message(r.Int(0)) + ": " + reason)
		}
	}, `SELECT position, state, delivered_at, acknowledged_at, receipt, ack,
		(SELECT acks FROM progress p WHERE p.message = m.position) FROM message m ORDER BY position`)
	if err == nil {
		err = fault
	}
	if err != nil {
		return err
	}
	all, err := a.Conn.Number("SELECT count(*) FROM receipt")
	if err == nil && all != met {
		err = a.findUnmet()
	}
	return err
}

// walk follows the chain of the message in the present row and compares. walked is
// how many receipts the chain has.
func (a *audit) walk(r *sqlite.Rows, final map[int64]bool) (reason string, walked int64, err error) {
	message, head := r.Int(0), r.Int(4)
	var ack, delivered, acknowledged, state int64
	more := int64(-1) // acknowledgements that are not final, after the first one
	for next, before := head, int64(relay.MaxPosition)+1; next != 0; {
		l, found, err := a.link(next)
		if err != nil {
			return "", walked, err
		}
		if !found || l.message != message || l.position >= before {
			return fmt.Sprintf("its chain of receipts is broken at %d", next), walked, nil
		}
		if walked++; walked == 1 {
			state = l.state
		}
		if l.status != 0 && ack == 0 {
			ack = l.position
		}
		if l.status != 0 && !final[l.status] {
			more++
		}
		if l.state == int64(relay.Delivered) || l.state == int64(relay.Acknowledged) {
			delivered = relay.Position(l.position).Time().UnixMilli() // at the end of the loop, the time of the oldest
		}
		if l.state == int64(relay.Acknowledged) {
			acknowledged = relay.Position(l.position).Time().UnixMilli()
		}
		next, before = l.previous, l.position
	}
	switch counted := r.Int(6); {
	case counted != max(more, 0) || !r.Null(6) && counted < 1:
		reason = fmt.Sprintf("it counts %d acknowledgements that are not final after the first one, its receipts are of %d",
			counted, max(more, 0))
	case walked == 0:
	case state != r.Int(1):
		reason = fmt.Sprintf("it is in state %d, its latest receipt says %d", r.Int(1), state)
	case ack != r.Int(5):
		reason = "it does not name its latest acknowledgement"
	case delivered != r.Int(2):
		reason = "its delivered_at is not that of its first receipt"
	case acknowledged != r.Int(3):
		reason = "its acknowledged_at is not that of the receipt that acknowledged it"
	}
	return reason, walked, nil
}

// findUnmet reports the receipts that belong to no chain.
func (a *audit) findUnmet() error {
	var fault error
	err := a.each(func(r *sqlite.Rows) {
		if fault != nil {
			return
		}
		p, message := r.Int(0), r.Int(1)
		next, before := r.Int(2), int64(relay.MaxPosition)+1
		for next > p && next < before {
			l, found, err := a.link(next)
			if fault = err; err != nil {
				return
			}
			if !found || l.message != message {
				break
			}
			next, before = l.previous, l.position
		}
		if next != p {
			a.finding.Fault(fmt.Sprintf("%s: its receipt %d is not in its chain", a.message(message), p))
		}
	}, "SELECT r.position, r.message, m.receipt FROM receipt r JOIN message m ON m.position = r.message")
	if err == nil {
		err = fault
	}
	return err
}

// checkMailboxes checks the tables `received` and `sent` (package mailbox). Up to the
// watermark every message must have its rows. After it rows may be missing, but none
// may be wrong.
func (a *audit) checkMailboxes() error {
	upto, err := a.indexedUpto()
	if err != nil {
		return err
	}
	err = a.ofMessages(reasons("position", `
		WHEN NOT EXISTS (`+file.IndexedAsReceived+`) THEN 'it is missing in the mailbox of its recipient'
		WHEN NOT EXISTS (`+indexedAsSent+`)
			THEN 'it is missing in the mailbox of its sender'`, "message m WHERE position <= ?"), upto)
	if err != nil {
		return err
	}
	// The rows of removed messages go later.
	err = a.ofMessages(`SELECT f.position, 'it is in a mailbox as received, but does not belong there' FROM received f
		LEFT JOIN message m ON m.position = f.position WHERE (m.recipient IS NOT f.mecha OR m.open <> f.open)
		AND NOT EXISTS (SELECT 1 FROM unlisted u WHERE u.position = f.position AND u.recipient = f.mecha AND f.open = 0)`)
	if err != nil {
		return err
	}
	return a.ofMessages(`SELECT f.position, 'it is in a mailbox as sent, but does not belong there' FROM sent f
		LEFT JOIN message m ON m.position = f.position WHERE m.sender IS NOT f.mecha
		AND NOT EXISTS (SELECT 1 FROM unlisted u WHERE u.position = f.position AND u.sender = f.mecha)`)
}

func (a *audit) checkPayloads() error {
	err := a.ofMessages(reasons("m.position", `
		WHEN p.position IS NULL THEN 'its payload is missing'
		WHEN length(p.body) <> m.payload_bytes THEN 'its payload has ' || length(p.body) || ' bytes, not ' || m.payload_bytes
		WHEN length(m.payload_sha256) <> 32 THEN 'its payload_sha256 is not 32 bytes long'`,
		`message m LEFT JOIN payload p ON p.position = m.position`))
	if err != nil {
		return err
	}
	return a.ofMessages(`SELECT position, 'its payload exists, but the message does not' FROM payload p
		WHERE NOT EXISTS (SELECT 1 FROM message m WHERE m.position = p.position)`)
}

func (a *audit) checkContents() error {
	n := int64(0)
	return a.each(func(r *sqlite.Rows) {
		if n++; n%1024 == 0 {
			a.progress(n, a.result.Messages)
		}
		body := r.Blob(2)
		sum := sha256.Sum256(body)
		reason := payloadFault(body)
		if !bytes.Equal(sum[:], r.Blob(1)) {
			reason = "its payload does not have the SHA-256 that was recorded"
		}
		if reason != "" {
			a.finding.Fault(a.message(r.Int(0)) + ": " + reason)
		}
	}, `SELECT m.position, m.payload_sha256, p.body FROM message m JOIN payload p ON p.position = m.position
		ORDER BY m.position`)
}

// indexedAsSent is a subquery for EXISTS. It reports whether the table `sent` has message m, an
// alias of the outer query.
const indexedAsSent = "SELECT 1 FROM sent f WHERE f.mecha = m.sender AND f.position = m.position"
