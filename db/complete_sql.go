package db

import (
	"context"
	"time"

	"relay/db/inspect"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// A Choice is a possible value of a command's argument, with a few words about it. It
// is for shell completion.
type Choice struct{ Value, About string }

const choices = 200 // the most that are listed

// AddressChoices lists up to 200 registered addresses that begin with prefix, sorted.
func (i *Inspector) AddressChoices(prefix string) ([]Choice, error) {
	return i.choices(func(r *sqlite.Rows) Choice { return Choice{r.Text(0), ""} },
		"SELECT address FROM mecha WHERE removed_at IS NULL AND substr(address, 1, length(?1)) = ?1 ORDER BY address LIMIT ?2", prefix)
}

// KeyChoices lists up to 200 ids that begin with prefix, of keys that are not revoked.
func (i *Inspector) KeyChoices(prefix string) ([]Choice, error) {
	return i.choices(func(r *sqlite.Rows) Choice {
		about := r.Text(1)
		if r.Text(2) != "" {
			about += ", " + r.Text(2)
		}
		return Choice{r.Text(0), about}
	}, `SELECT k.public_id, m.address, k.label FROM mecha_key k JOIN mecha m ON m.id = k.mecha
		WHERE k.revoked_at IS NULL AND substr(k.public_id, 1, length(?1)) = ?1 ORDER BY k.id DESC LIMIT ?2`, prefix)
}

func (i *Inspector) choices(read func(*sqlite.Rows) Choice, query, prefix string) ([]Choice, error) {
	return see(i, func(x *rx) (list []Choice, err error) {
		r := x.c.Query(query, prefix, int64(choices))
		for r.Next() {
			list = append(list, read(r))
		}
		return list, r.Close()
	})
}

// MessageChoices lists the newest 200 messages, the newest first.
func (i *Inspector) MessageChoices() ([]Choice, error) {
	return i.latest(func(m *relay.Message) Choice { return Choice{string(m.ID), about(m)} })
}

// ConversationChoices lists the conversations of the newest 200 messages.
func (i *Inspector) ConversationChoices() ([]Choice, error) {
	seen := map[relay.ConversationID]bool{}
	return i.latest(func(m *relay.Message) Choice {
		if seen[m.Conversation] {
			return Choice{}
		}
		seen[m.Conversation] = true
		return Choice{string(m.Conversation), about(m)}
	})
}

// about describes a message in a few words.
func about(m *relay.Message) string {
	return string(m.From) + " → " + string(m.To) + ", " + m.State.String() + ", " + m.CreatedAt.UTC().Format(time.DateTime)
}

// latest makes choices of the newest messages, without those that have no value.
func (i *Inspector) latest(read func(*relay.Message) Choice) ([]Choice, error) {
	messages, _, err := i.Messages(context.Background(), inspect.ListQuery{Limit: choices})
	if err != nil {
		return nil, err
	}
	var list []Choice
	for _, m := range messages {
		if c := read(m); c.Value != "" {
			list = append(list, c)
		}
	}
	return list, nil
}
