// Package dbtest is for tests of packages that read a store: it makes stores, reads their content,
// and shows SQLite's plans of queries.
package dbtest

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"relay/db"
	"relay/db/file"
	"relay/db/internal/engine"
	"relay/db/internal/messages"
	"relay/db/relay"
	"relay/db/scratch"
)

// Open opens a new store, which the end of the test closes.
func Open(t testing.TB, options ...func(*db.Options)) *db.DB {
	t.Helper()
	_, here, _, _ := runtime.Caller(0)
	schema, err := os.ReadFile(filepath.Join(filepath.Dir(here), "..", "..", "schema.sql"))
	if err != nil {
		t.Fatal(err)
	}
	o := db.Options{Path: filepath.Join(scratch.Dir(t), "relay.db"), Schema: string(schema), Create: true,
		ClockSkew: 5 * time.Minute}
	for _, f := range options {
		f(&o)
	}
	d, err := db.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// Issue registers a Mecha and returns its key.
func Issue(t testing.TB, d *db.DB, a relay.Address) *relay.Key {
	t.Helper()
	k, err := d.Issue(&relay.IssueKey{At: time.Now(), Address: a})
	if err != nil {
		t.Fatal(err)
	}
	return k.Key
}

// Send sends a message and returns its id.
func Send(t testing.TB, d *db.DB, m *relay.SendMessage) relay.MessageID {
	t.Helper()
	if err := m.Validate(); err != nil {
		t.Fatal(err)
	}
	sent, err := d.Send(m)
	if err != nil {
		t.Fatal(err)
	}
	return sent.ID
}

// Plan returns SQLite's plan of a query, a line for each step.
func Plan(t testing.TB, v engine.Viewer, text string, args ...any) string {
	t.Helper()
	var plan strings.Builder
	err := v.Point(t.Context(), func(x *engine.Rx) error {
		text, err := messages.WithFailed(x, text)
		if err != nil {
			return err
		}
		r := x.C.Query("EXPLAIN QUERY PLAN "+text, args...)
		for r.Next() {
			plan.WriteString(r.Text(3) + "\n")
		}
		return r.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
	return plan.String()
}

// Messages reads all messages that a query finds, which needs no Limit.
func Messages(ctx context.Context, v engine.Viewer, q relay.HistoryQuery) (all []*relay.Message, err error) {
	q.Limit = 1000
	for more := true; more && err == nil; {
		var page relay.Page
		page, err = messages.ReadPage(ctx, v.Scan, q)
		all = append(all, page.Messages...)
		if more = page.More; q.Descending {
			q.Before = page.Next
		} else {
			q.After = page.Next
		}
	}
	return all, err
}

// Answers reads the first 1000 messages that name a message as the one that they answer.
func Answers(ctx context.Context, v engine.Viewer, id relay.MessageID) ([]*relay.Message, error) {
	return engine.Get(ctx, v.Point, func(x *engine.Rx) ([]*relay.Message, error) {
		m, err := messages.ByID(x, id)
		if err != nil {
			return nil, err
		}
		return messages.AnswersOf(x, m.Position, 1000)
	})
}

// Acts reads the whole audit log.
func Acts(ctx context.Context, v engine.Viewer) ([]relay.NotedAct, error) {
	return engine.Get(ctx, v.Point, func(x *engine.Rx) ([]relay.NotedAct, error) {
		return file.ReadActs(x.C, time.Time{})
	})
}
