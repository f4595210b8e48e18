package browse

import (
	"bytes"
	"context"
	"slices"
	"time"

	"relay/db/file"
	"relay/db/internal/engine"
	"relay/db/internal/messages"
	"relay/db/internal/sqlite"
	"relay/db/look"
	"relay/db/relay"
)

// Message reads the record of any message, without its payload. Error: MessageNotFound.
func (i Inspector) Message(id relay.MessageID) (*relay.Message, error) {
	return look.See(i, func(x *engine.Rx) (*relay.Message, error) { return messages.ByID(x, id) })
}

// Payload reads the exact bytes of any message. Error: MessageNotFound.
func (i Inspector) Payload(id relay.MessageID) ([]byte, error) {
	return look.See(i, func(x *engine.Rx) ([]byte, error) { return messages.PayloadFor(x, id, nil) })
}

// Messages lists up to q.Limit messages. more says that further ones match. It reads the
// file in several views, so while a server writes, the list is not a consistent snapshot.
// The end of ctx ends it between two views; then the list has the messages found until then.
// Errors: MechaNotFound, CursorNotFound, and the error of ctx.
func (i Inspector) Messages(ctx context.Context, q ListQuery) (list []*relay.Message, more bool, err error) {
	h, err := i.history(q)
	if err != nil {
		return nil, false, err
	}
	for {
		page, err := messages.ReadPage(ctx, i.Scan, h)
		keepStatus(&page, q.Status)
		if err == nil && q.Text != "" {
			page.Messages, err = i.withText(ctx, page.Messages, q.Text)
		}
		if err != nil {
			return list, false, err
		}
		list = append(list, page.Messages...)
		if len(list) > q.Limit {
			return list[:q.Limit], true, nil
		}
		if !page.More || ctx.Err() != nil {
			return list, false, ctx.Err()
		}
		if h.Descending {
			h.Before = page.Next
		} else {
			h.After = page.Next
		}
	}
}

// history makes the query for the pages of a list. Error: MechaNotFound.
func (i Inspector) history(q ListQuery) (h relay.HistoryQuery, err error) {
	h = relay.HistoryQuery{Limit: min(q.Limit+1, 1000), Since: q.Since, Until: q.Until, After: q.After, Before: q.Before,
		Direction: q.Direction, State: q.State, Conversation: q.Conversation, Peer: q.Peer, Type: q.Type,
		Priority: q.Priority, Descending: !q.Oldest}
	if q.Mecha == "" {
		if q.Peer != "" { // without a Mecha, the messages that Peer sent or received
			h.Peer, q.Mecha = "", q.Peer
		}
	}
	if q.Mecha == "" {
		return h, nil
	}
	h.Mecha, err = i.Number(q.Mecha)
	return h, err
}

// Number finds a Mecha, even if it was removed. Error: MechaNotFound.
func (i Inspector) Number(a relay.Address) (relay.MechaNumber, error) {
	id, err := look.See(i, func(x *engine.Rx) (int64, error) {
		return x.C.Number("SELECT id FROM mecha WHERE address = ?", string(a))
	})
	if err == nil && id == 0 {
		err = relay.Errorf(relay.MechaNotFound, "%s is not registered, and never was (relay mecha list)", a)
	}
	return relay.MechaNumber(id), err
}

// keepStatus drops the messages of a page whose latest acknowledgement has another
// status, unless status is "".
func keepStatus(p *relay.Page, status string) {
	if status != "" {
		p.Messages = slices.DeleteFunc(p.Messages, func(m *relay.Message) bool {
			return m.Ack == nil || m.Ack.Status != status
		})
	}
}

const textBytes = 4 << 20 // bytes of payloads that are read in one view; a single payload may have more

// withText returns the messages of a list whose payload has the text.
func (i Inspector) withText(
	ctx context.Context, list []*relay.Message, text string,
) (found []*relay.Message, err error) {
	lower := bytes.ToLower([]byte(text))
	for len(list) > 0 {
		n, size := 0, 0
		for n < len(list) && size < textBytes {
			size += list[n].PayloadBytes
			n++
		}
		err := i.Scan(ctx, func(x *engine.Rx) error {
			for _, m := range list[:n] {
				body, kept, err := messages.KeptPayload(x, m.Position)
				if err != nil {
					return err
				}
				if kept && bytes.Contains(bytes.ToLower(body), lower) {
					found = append(found, m)
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		list = list[n:]
	}
	return found, nil
}

// Acts reads the audit log from a time on, the oldest act first.
func (i Inspector) Acts(since time.Time) ([]relay.NotedAct, error) {
	return look.See(i, func(x *engine.Rx) ([]relay.NotedAct, error) { return file.ReadActs(x.C, since) })
}

// Addresses lists up to limit registered addresses that begin with prefix, sorted.
func (i Inspector) Addresses(prefix string, limit int) ([]relay.Address, error) {
	return look.See(i, func(x *engine.Rx) ([]relay.Address, error) {
		r := x.C.Query("SELECT address FROM mecha WHERE removed_at IS NULL AND substr(address, 1, length(?1)) = ?1 "+
			"ORDER BY address LIMIT ?2", prefix, int64(limit))
		return engine.All(r, func(r *sqlite.Rows) relay.Address { return relay.Address(r.Text(0)) })
	})
}

// Answers lists the first messages that name a message as their question. Error:
// MessageNotFound.
func (i Inspector) Answers(id relay.MessageID, limit int) ([]*relay.Message, error) {
	return look.See(i, func(x *engine.Rx) ([]*relay.Message, error) {
		m, err := messages.ByID(x, id)
		if err != nil {
			return nil, err
		}
		return messages.AnswersOf(x, m.Position, limit)
	})
}
