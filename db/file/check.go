package file

import (
	"context"
	"path/filepath"
	"time"
)

// CheckOptions says which file to check, and how. Path and Schema are required.
type CheckOptions struct {
	Path   string
	Schema string // the text of schema.sql
	// Quick leaves out the checks that read every payload: its hash, its JSON, and
	// SQLite's comparison of indexes with their tables.
	Quick    bool
	Report   func(Finding) // called with each check as it ends, in their order; may be nil
	Progress Progress      // may be nil
}

// A Finding is the outcome of one check.
type Finding struct {
	Check    string   // the name of the check, one word
	Rule     string   // the rule that the file must keep
	Faults   int      // how many places break the rule
	Examples []string // the first five of them, with ids
	Warning  bool     // faults of this check are harmless, and count as warnings
	Skipped  string   // why the check was not made, or ""
}

// CheckResult sums up all checks of a file.
type CheckResult struct {
	Path     string // absolute
	Schema   int64  // the file's schema version
	Bytes    int64  // of the file and its log
	Messages int64
	Mechas   int64
	Checks   int // how many were made
	Faults   int // of all checks that do not only warn
	Warnings int // of the checks that only warn
	Took     time.Duration
}

const maxExamplesShown = 5

// Fault adds one fault to a finding.
func (f *Finding) Fault(example string) {
	f.Faults++
	if len(f.Examples) < maxExamplesShown {
		f.Examples = append(f.Examples, example)
	}
}

// Check checks a file: a backup, or the database of a server, even while the server runs.
// It reads a consistent snapshot, writes nothing and leaves no other file. Faults are in
// the result. An error means that the file is not a relay database, that a newer relay
// wrote it, or that ctx has ended. While Check runs, SQLite cannot restart the log of a
// served file. Without the ring check, it checks only SQLite's rules.
func Check(ctx context.Context, o CheckOptions) (CheckResult, error) { return checker(ctx, o) }

type checkFunc = func(context.Context, CheckOptions) (CheckResult, error)

var checker checkFunc = checkPages

// CheckBy has Check call f, which also checks the rules of relay. Call it before the first Check.
func CheckBy(f checkFunc) { checker = f }

// checkPages is a Check by SQLite's rules alone.
func checkPages(ctx context.Context, o CheckOptions) (r CheckResult, err error) {
	began := time.Now()
	if r.Path, err = filepath.Abs(o.Path); err != nil {
		return r, err
	}
	s, err := OpenSnapshot(ctx, r.Path)
	if err != nil {
		return r, err
	}
	defer s.Close()
	f := Finding{Check: "file", Rule: "SQLite finds every page whole, and every reference leads to a row"}
	for _, pragma := range []string{"PRAGMA quick_check", "PRAGMA foreign_key_check"} {
		rows := s.Query(pragma)
		for rows.Next() {
			if text := rows.Text(0); text != "ok" {
				f.Fault(text)
			}
		}
		if err := rows.Close(); err != nil {
			f.Fault("cannot be read: " + err.Error())
		}
	}
	counted, err := s.count()
	if err != nil {
		f.Fault("cannot be read: " + err.Error())
	}
	if o.Report != nil && ctx.Err() == nil {
		o.Report(f)
	}
	r.Schema, r.Messages, r.Mechas = s.Info.Version, counted.Messages, counted.Mechas
	r.Checks, r.Faults, r.Took = 1, f.Faults, time.Since(began)
	return r, ctx.Err()
}
