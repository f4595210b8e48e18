package relay

// IsReplyTo reports whether m is a reply to the question q (PROTOCOL §3, Send: in_reply_to).
// A reply is a message from the recipient of q to its sender that names q. A message that
// names no other one is a reply, too, if it came later in the same conversation, with the
// correlation id of q if q has one.
func (m *Message) IsReplyTo(q *Message) bool {
	switch {
	case m.Sender != q.Recipient || m.Recipient != q.Sender || m.Position <= q.Position:
		return false
	case m.InReplyTo != "":
		return m.InReplyTo == q.ID
	}
	return m.Conversation == q.Conversation && (q.CorrelationID == "" || q.CorrelationID == m.CorrelationID)
}

// ReplyQuery asks for the reply to a message.
type ReplyQuery struct {
	Question *Message
	// After is the position up to which an earlier answer to this query has searched the
	// conversation; 0 for a new search.
	After Position
}

// ReplyFound is the answer to a ReplyQuery.
type ReplyFound struct {
	Reply  *Message // with its payload, or nil
	Looked int      // how many rows the search has read
	// More says that the conversation has more messages than one search reads. The next
	// one continues after Upto.
	More bool
	Upto Position
}
