package messages

import (
	"fmt"
	"strings"

	"relay/db/internal/engine"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// inState has the condition of each filter on the state of a message m. Its arguments are
// as many times now, in Unix ms, as it has question marks: a pending message whose
// ExpiresAt has come counts as expired. failedWords is replaced by the list of that name.
var inState = map[relay.StateFilter]string{
	relay.AnyState:         "TRUE",
	relay.OnlyPending:      "m.state IN (0, 1) AND (m.expires_at IS NULL OR m.expires_at > ?)",
	relay.OnlyQueued:       "m.state = 0 AND (m.expires_at IS NULL OR m.expires_at > ?)",
	relay.OnlyDelivered:    "m.state = 1 AND (m.expires_at IS NULL OR m.expires_at > ?)",
	relay.OnlyAcknowledged: "m.state = 2",
	relay.OnlyExpired:      "(m.state = 3 OR m.state IN (0, 1) AND m.expires_at <= ?)",
	relay.OnlyDead: `(m.state = 3 OR m.state IN (0, 1) AND m.expires_at <= ?
		OR m.state = 2 AND a.status IN failedWords)`,
	relay.OnlyOverdue: "m.state IN (0, 1) AND m.ack_by <= ? AND (m.expires_at IS NULL OR m.expires_at > ?)",
}

// failedWords returns, as a list in SQL, the numbers of the statuses that say that the work was not
// done. They are part of a query's text, since they hardly ever change.
func failedWords(x *engine.Rx) (string, error) {
	failed, err := x.Words.Find(x.C, "failed")
	if err != nil {
		return "", err
	}
	rejected, err := x.Words.Find(x.C, "rejected")
	return fmt.Sprintf("(%d, %d)", failed, rejected), err
}

// WithFailed puts that list into the text of a query.
func WithFailed(x *engine.Rx, text string) (string, error) {
	if !strings.Contains(text, "failedWords") {
		return text, nil
	}
	list, err := failedWords(x)
	return strings.Replace(text, "failedWords", list, 1), err
}

// The parties of a message m. The arguments of each are the Mecha, and twice its peer or 0.
const (
	isReceived = "(m.recipient = ? AND (? = 0 OR m.sender = ?))"
	isSent     = "(m.sender = ? AND (? = 0 OR m.recipient = ?))"
)

// conditions makes the part of a query of messages m that applies the filters of q. Values
// are arguments, 0 for an unset filter. So there are few different texts, and every
// connection keeps each as a statement. possible is false if no message can match.
func conditions(x *engine.Rx, q relay.HistoryQuery) (where string, args []any, possible bool, err error) {
	number := func(text string, find func(string) (int64, error)) (id int64) {
		if text == "" || err != nil || !possible {
			return 0
		}
		id, err = find(text)
		possible = id != 0
		return id
	}
	possible = true
	word := func(text string) (int64, error) { return x.Words.Find(x.C, text) }
	kind, priority := number(q.Type, word), number(q.Priority, word)
	peer := number(string(q.Peer), func(a string) (int64, error) { return anyMecha(x, a) })
	if err != nil || !possible {
		return "", nil, false, err
	}
	state, err := WithFailed(x, inState[q.State])
	if err != nil {
		return "", nil, false, err
	}
	where = " WHERE (? = 0 OR m.type = ?) AND (? = 0 OR m.priority = ?) AND " + state
	args = []any{kind, kind, priority, priority}
	for range strings.Count(state, "?") {
		args = append(args, x.Now.UnixMilli())
	}
	if q.Mecha == 0 {
		return where, args, q.Peer == "", nil
	}
	party := []any{int64(q.Mecha), peer, peer}
	switch q.Direction {
	case relay.In:
		where += " AND " + isReceived
	case relay.Out:
		where += " AND " + isSent
	default:
		where += " AND (" + isReceived + " OR " + isSent + ")"
		args = append(args, party...)
	}
	return where, append(args, party...), true, nil
}

// anyMecha returns the number of an address, even of a removed Mecha, or 0.
func anyMecha(x *engine.Rx, a string) (id int64, err error) {
	_, err = x.C.Row(func(r *sqlite.Rows) {
		if r.Text(1) == a {
			id = r.Int(0)
		}
	}, "SELECT id, address FROM mecha WHERE address = ?", a)
	return id, err
}
