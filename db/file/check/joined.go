package check

import "strconv"

// checkJoined checks the tables `joined` and `reply` (package mailbox). Up to the watermark
// every message must have its rows. After it rows may be missing, but none may be wrong.
func (a *audit) checkJoined() error {
	upto, err := a.indexedUpto()
	if err != nil {
		return err
	}
	err = a.ofMessages(reasons("position", `
		WHEN conversation IS NOT NULL AND NOT EXISTS (`+indexedAsJoined+`)
			THEN 'it is missing in the index of its conversation'
		WHEN in_reply_to IS NOT NULL AND NOT EXISTS (SELECT 1 FROM reply f WHERE f.question = m.in_reply_to
			AND f.position = m.position)
			THEN 'it is missing in the index of answers'`, "message m WHERE position <= ?"), upto)
	if err != nil {
		return err
	}
	err = a.ofMessages(`SELECT f.position,
		'it is in the index of conversation ' || f.conversation || ', but does not belong there'
		FROM joined f
		LEFT JOIN message m ON m.position = f.position WHERE m.conversation IS NOT f.conversation`)
	if err != nil {
		return err
	}
	return a.ofMessages(`SELECT f.position,
		'it is in the index of answers to message ' || f.question || ', but does not belong there'
		FROM reply f
		LEFT JOIN message m ON m.position = f.position WHERE m.in_reply_to IS NOT f.question`)
}

// indexedAsJoined is a subquery for EXISTS. It reports whether the table `joined` has message m,
// an alias of the outer query.
const indexedAsJoined = "SELECT 1 FROM joined f WHERE f.conversation = m.conversation AND f.position = m.position"

// indexedUpto reads the watermark of the index tables.
func (a *audit) indexedUpto() (int64, error) {
	return a.Conn.Number("SELECT value FROM setting WHERE name = 'indexed_upto'")
}

// hasMessages returns the condition that the conversation in a column has a message.
func (a *audit) hasMessages(column string) (string, error) {
	upto, err := a.indexedUpto()
	return "(EXISTS (SELECT 1 FROM joined j WHERE j.conversation = " + column + `)
		OR EXISTS (SELECT 1 FROM message m WHERE m.position = ` + column + `)
		OR ` + column + ` IN (SELECT conversation FROM message WHERE conversation IS NOT NULL
			AND position > ` + strconv.FormatInt(upto, 10) + "))", err
}

// countMessages returns the columns `conversation` and `here` of the table conversation_limit:
// how many messages each conversation has.
func (a *audit) countMessages() (string, error) {
	upto, err := a.indexedUpto()
	return `SELECT c.*, (SELECT count(*) FROM joined j WHERE j.conversation = c.conversation) + coalesce(l.n, 0)
		+ (SELECT count(*) FROM message m WHERE m.position = c.conversation) AS here FROM conversation_limit c
		LEFT JOIN (SELECT conversation, count(*) AS n FROM message m WHERE conversation IS NOT NULL
			AND position > ` + strconv.FormatInt(upto, 10) + `
			AND NOT EXISTS (` + indexedAsJoined + `) GROUP BY conversation) l ON l.conversation = c.conversation`, err
}
