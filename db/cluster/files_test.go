//go:build cluster

package cluster

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"testing"

	"relay/db/file"
	"relay/db/internal/sqlite"
)

// shared are the tables whose rows all copies have. The index of messages (received, sent, joined,
// reply) is left out, since each node writes it when it likes; a check compares it.
var shared = []string{"mecha", "profile", "kept_nonce", "mecha_key", "word", "message", "payload", "receipt", "progress", "conversation_limit", "attempt",
	"participant", "dormant", "clock_ahead", "audit", "exchange", "learner", "learned", "replica", "origin", "entry_nonce"}

// rows returns all rows that copies share, of a stopped machine.
func (m *machine) rows() (all []string) {
	m.Helper()
	c, err := sqlite.Open(m.dbPath, sqlite.Reading)
	if err != nil {
		m.Fatal(err)
	}
	defer c.Close()
	for _, table := range append([]string{"setting WHERE name NOT IN ('indexed_upto', 'start', 'clock')"}, shared...) {
		name, _, _ := strings.Cut(table, " ")
		columns, err := c.Number("SELECT count(*) FROM pragma_table_info(?)", name)
		if err != nil {
			m.Fatal(err)
		}
		rows := c.Query("SELECT * FROM " + table + " ORDER BY 1, 2")
		for rows.Next() {
			row := []any{name}
			for i := range int(columns) {
				row = append(row, rows.Value(i))
			}
			all = append(all, fmt.Sprintf("%#v", row)) // bytes in full
		}
		if err := rows.Close(); err != nil {
			m.Fatal(err)
		}
	}
	return all
}

// wantSame compares the files of stopped machines, and checks them.
func wantSame(all ...*machine) {
	all[0].Helper()
	want := all[0].rows()
	for _, m := range all {
		got := m.rows()
		for i := range max(len(got), len(want)) {
			if i >= len(got) || i >= len(want) || got[i] != want[i] {
				m.Errorf("%s has %d rows, %s %d; row %d is\n%s\nwant\n%s", m.name, len(got), all[0].name, len(want), i,
					append(got, "nothing")[min(i, len(got))], append(want, "nothing")[min(i, len(want))])
				break
			}
		}
		r, err := file.Check(m.Context(), file.CheckOptions{Path: m.dbPath, Schema: schema(m.TB), Report: func(f file.Finding) {
			if f.Faults > 0 && !f.Warning {
				m.Errorf("%s: %s: %s", m.name, f.Check, strings.Join(f.Examples, "; "))
			}
		}})
		if err != nil || r.Faults > 0 {
			m.Errorf("%s has %d faults: %v", m.name, r.Faults, err)
		}
	}
}

// wantMessages fails the test unless the file of a stopped machine has the messages of these
// texts, each once.
func wantMessages(t *testing.T, m *machine, texts []string) {
	t.Helper()
	c, err := sqlite.Open(m.dbPath, sqlite.Reading)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var have []string
	rows := c.Query("SELECT json_extract(CAST(payload.body AS TEXT), '$.text') FROM payload")
	for rows.Next() {
		have = append(have, rows.Text(0))
	}
	if err := rows.Close(); err != nil {
		t.Fatal(err)
	}
	want := slices.Clone(texts)
	slices.Sort(have)
	slices.Sort(want)
	if !slices.Equal(have, want) {
		t.Errorf("%s has %d messages, want %d:\n%q\nwant\n%q", m.name, len(have), len(want), have, want)
	}
}

// execute changes the file of a stopped machine by hand.
func (m *machine) execute(statement string) {
	m.Helper()
	c, err := sqlite.Open(m.dbPath, sqlite.Writing)
	if err != nil {
		m.Fatal(err)
	}
	defer c.Close()
	if err := c.Exec(statement); err != nil {
		m.Fatal(err)
	}
}

// loseFile removes the store's file of a stopped machine.
func (m *machine) loseFile() {
	m.Helper()
	removeAll(m.dbPath + "*")
}

func (m *machine) copyFolder(from, to string) {
	m.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		m.Fatal(err)
	}
}

// replaceFolder puts the folder from in the place of to; "" is an empty one.
func (m *machine) replaceFolder(from, to string) {
	m.Helper()
	err := os.RemoveAll(to)
	if err == nil && from != "" {
		err = os.Rename(from, to)
	}
	if err != nil {
		m.Fatal(err)
	}
}
