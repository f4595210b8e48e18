package file

// checkDeadlines checks what messages have by their senders' wish (db/send_sql.go).
func (a *audit) checkDeadlines() error {
	if a.older(notices) {
		return nil
	}
	return a.ofMessages(reasons("position", `
		WHEN overdue IS NOT NULL AND (overdue <> 1 OR ack_by IS NULL) THEN 'its sender was told that it is overdue, but it has no ack_by'
		WHEN in_reply_to >= position THEN 'it answers a message that came after it'
		WHEN tracestate IS NOT NULL AND traceparent IS NULL THEN 'it has a tracestate without a traceparent'`, "message"))
}

// checkBroadcasts checks the messages of each broadcast that are still there (db/crew_sql.go).
func (a *audit) checkBroadcasts() error {
	if a.older(notices) {
		return nil
	}
	return a.ofMessages(reasons("m.position", `
		WHEN m.broadcast < 1 THEN 'it is for a crew, but goes to ' || m.broadcast || ' Mechas'
		WHEN EXISTS (SELECT 1 FROM message o WHERE o.position > m.position AND o.position < m.position + m.broadcast
			AND (o.broadcast IS NOT NULL OR o.sender <> m.sender OR o.recipient <= m.recipient OR o.payload_sha256 <> m.payload_sha256
			OR o.conversation <> coalesce(m.conversation, m.position) OR o.conversation IS NULL)) THEN 'another message is among those to its crew'
		WHEN EXISTS (SELECT 1 FROM receipt r WHERE r.position > m.position AND r.position < m.position + m.broadcast) THEN 'a receipt is among the messages to its crew'`,
		"message m WHERE m.broadcast IS NOT NULL"))
}

// checkLimits checks the table conversation_limit (db/limit_sql.go).
func (a *audit) checkLimits() error {
	if a.older(notices) {
		return nil
	}
	return a.ofRows(`SELECT 'the limit of conversation ' || conversation || ': ' || reason FROM (SELECT conversation, CASE
		WHEN held < 1 OR most < 1 OR told NOT IN (0, 1) THEN 'it has a value that is not allowed'
		WHEN conversation > 0 AND founder <> conversation THEN 'its founder is another message'
		WHEN here > held THEN 'it counts ' || held || ' messages, but there are ' || here
		WHEN here = 0 AND NOT EXISTS (SELECT 1 FROM dormant d WHERE d.conversation = l.conversation) THEN 'there is no such conversation'
		END AS reason FROM (SELECT *, (SELECT count(*) FROM message m WHERE m.conversation = c.conversation)
			+ (SELECT count(*) FROM message m WHERE m.position = c.conversation) AS here FROM conversation_limit c) l) WHERE reason IS NOT NULL`)
}

// older tells whether the file is older than a schema, and then says that the present check
// is left out.
func (a *audit) older(schema int64) bool {
	if a.info.Version < schema {
		a.finding.Skipped = "the file is older than what is checked here"
	}
	return a.info.Version < schema
}
