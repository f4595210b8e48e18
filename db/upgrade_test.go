package db

import (
	"relay/db/relay"

	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// pretendStep makes the program one that knows a step more than it does, and gives
// the schema that the step leads to. The tests of this file cannot run in parallel.
func pretendStep(t *testing.T) (schema string) {
	t.Helper()
	text, err := os.ReadFile("../schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	const step = "CREATE TABLE pretended (id INTEGER PRIMARY KEY, of INTEGER NOT NULL) STRICT;"
	before := upgrades
	upgrades = append(slices.Clone(before), step+" INSERT INTO pretended SELECT id, id FROM mecha;")
	t.Cleanup(func() { upgrades = before })
	return string(text) + step
}

func countOn(d *DB, query string) (n int64, err error) {
	err = d.read(context.Background(), func(x *rx) error {
		n, err = x.c.Number(query)
		return err
	})
	return n, err
}

// mustMakeOlder makes a file with a message, by a program that lacks the step.
func mustMakeOlder(t *testing.T) (path string, sent relay.Sent) {
	t.Helper()
	d := openHere(t, func(o *Options) { o.Serve = true })
	sent, err := d.Send(message(mustIssue(t, d, "old^timer"), "old^timer", `{}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	return d.Path(), sent
}

func TestAnOlderFileIsBroughtUpToDate(t *testing.T) {
	path, sent := mustMakeOlder(t)
	schema := pretendStep(t)
	if _, err := Inspect(path); err == nil || !strings.Contains(err.Error(), "written by an older relay") {
		t.Errorf("a look into the file before: %v", err)
	}
	old, err := Check(t.Context(), CheckOptions{Path: path, Schema: schema})
	if err != nil || old.Faults > 0 || old.Schema != 1 || old.Messages != 1 {
		t.Errorf("a check of the file before: %+v, %v", old, err)
	}
	d, err := Open(Options{Path: path, Schema: schema, Serve: true})
	if err != nil {
		t.Fatal(err)
	}
	k := mustIssue(t, d, "old^timer")
	if m, err := d.Message(t.Context(), k.Mecha.ID, sent.ID); err != nil || m.To != "old^timer" {
		t.Errorf("the message in it is %+v, %v", m, err)
	}
	if n, err := countOn(d, "SELECT count(*) FROM pretended"); err != nil || n != 1 {
		t.Errorf("the step brought %d rows, %v", n, err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	// The schema is that of a new file, which Check compares it with.
	now, err := Check(context.Background(), CheckOptions{Path: path, Schema: schema})
	if err != nil || now.Faults > 0 || now.Schema != CurrentSchema() || now.Messages != 1 {
		t.Errorf("%+v, %v", now, err)
	}
}

// A step that fails leaves the file as it was, with its version.
func TestAStepThatFailsChangesNothing(t *testing.T) {
	path, _ := mustMakeOlder(t)
	schema := pretendStep(t)
	upgrades[len(upgrades)-1] += " INSERT INTO nowhere VALUES (1);"
	if _, err := Open(Options{Path: path, Schema: schema}); err == nil {
		t.Error("it was opened")
	}
	upgrades = upgrades[:len(upgrades)-1]
	text, _, _ := strings.Cut(schema, "CREATE TABLE pretended")
	r, err := Check(t.Context(), CheckOptions{Path: path, Schema: text})
	if err != nil || r.Faults > 0 || r.Schema != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}

// A command of a newer relay must not change the file under an older one that serves it.
func TestAnOlderFileThatIsServedIsLeftAlone(t *testing.T) {
	d := openHere(t, func(o *Options) { o.Serve = true })
	mustIssue(t, d, "alice^x")
	schema := pretendStep(t)
	_, err := Open(Options{Path: d.Path(), Schema: schema, Now: time.Now})
	if err == nil || !strings.Contains(err.Error(), "older relay") {
		t.Errorf("%v", err)
	}
	if n, err := countOn(d, "PRAGMA user_version"); err != nil || n != CurrentSchema()-1 {
		t.Errorf("it is of version %d now, %v", n, err)
	}
}
