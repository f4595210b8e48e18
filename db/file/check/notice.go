package check

// checkDeadlines checks the deadlines that senders have set (db/internal/sending/send_sql.go).
func (a *audit) checkDeadlines() error {
	return a.ofMessages(reasons("position", `
		WHEN overdue IS NOT NULL AND (overdue <> 1 OR ack_by IS NULL)
			THEN 'its sender was told that it is overdue, but it has no ack_by'
		WHEN in_reply_to >= position THEN 'it answers a message that came after it'
		WHEN tracestate IS NOT NULL AND traceparent IS NULL THEN 'it has a tracestate without a traceparent'`, "message"))
}

// checkAttempts checks the table attempt (db/internal/progress/claim_sql.go).
func (a *audit) checkAttempts() error {
	return a.ofMessages(reasons("a.message", `
		WHEN m.position IS NULL THEN 'there is an attempt at it, but it is missing'
		WHEN m.open <> 1 THEN 'there is an attempt at it, but it is not pending'
		WHEN a.recipient <> m.recipient THEN 'there is an attempt at it by another Mecha than its recipient'
		WHEN a.number < 1 OR a.until IS NULL AND (a.number < 2 OR a.key IS NOT NULL)
			THEN 'its attempt has values that do not belong together'
		WHEN a.key IS NOT NULL AND (a.lease IS NULL OR k.mecha <> m.recipient)
			THEN 'its lease has no length, or is of another Mecha'
		WHEN a.again > a.since THEN 'it was redelivered later than its attempt began'
		WHEN r.message IS NOT a.message THEN 'its attempt names a receipt of another message'`,
		`attempt a LEFT JOIN message m ON m.position = a.message LEFT JOIN mecha_key k ON k.id = a.key
			LEFT JOIN receipt r ON r.position = a.since`))
}

// checkBroadcasts checks the messages of each broadcast that are still there (db/internal/sending/crew_sql.go).
func (a *audit) checkBroadcasts() error {
	return a.ofMessages(reasons("m.position", `
		WHEN m.broadcast < 1 THEN 'it is for a crew, but goes to ' || m.broadcast || ' Mechas'
		WHEN EXISTS (SELECT 1 FROM message o WHERE o.position > m.position AND o.position < m.position + m.broadcast
			AND (o.broadcast IS NOT NULL OR o.sender <> m.sender OR o.recipient <= m.recipient
				OR o.payload_sha256 <> m.payload_sha256
				OR o.conversation <> coalesce(m.conversation, m.position) OR o.conversation IS NULL))
				THEN 'another message is among those to its crew'
		WHEN EXISTS (SELECT 1 FROM receipt r WHERE r.position > m.position AND r.position < m.position + m.broadcast)
			THEN 'a receipt is among the messages to its crew'`,
		"message m WHERE m.broadcast IS NOT NULL"))
}

// checkLimits checks the table conversation_limit (db/internal/sending/limit_sql.go).
func (a *audit) checkLimits() error {
	counted, err := a.countMessages()
	if err != nil {
		return err
	}
	return a.ofRows(`SELECT 'the limit of conversation ' || conversation || ': ' || reason FROM (SELECT conversation, CASE
		WHEN held < 1 OR most < 1 OR told NOT IN (0, 1) THEN 'it has a value that is not allowed'
		WHEN conversation > 0 AND founder <> conversation THEN 'its founder is another message'
		WHEN here > held THEN 'it counts ' || held || ' messages, but there are ' || here
		WHEN here = 0 AND NOT EXISTS (SELECT 1 FROM dormant d WHERE d.conversation = l.conversation)
			THEN 'there is no such conversation'
		END AS reason FROM (` + counted + `) l) WHERE reason IS NOT NULL`)
}
