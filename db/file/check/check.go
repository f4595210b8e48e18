// Package check has the rules of a relay's file beyond SQLite's, a function for each: states,
// orders, interned strings, chains of receipts, payloads, addresses, profiles. It only reads, by a
// file.Snapshot. With this package, file.Check makes all of these checks, and so does a backup
// before the copy gets its name. Each file has the rules of one subject.
package check

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"relay/db/file"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// check is one rule, and the function that looks for faults.
type check struct {
	name  string
	rule  string
	full  bool // file.CheckOptions.Quick leaves the check out
	warns bool // faults count as warnings
	run   func(*audit) error
}

// checks are made in this order: first the rules that SQLite knows, then our own.
var checks = []check{
	{name: "file", rule: "SQLite finds every page whole, and every index equal to its table", run: (*audit).checkFile},
	{name: "schema", rule: "tables and indexes are as in schema.sql", run: (*audit).checkSchema},
	{name: "references", rule: "every reference leads to a row", run: (*audit).checkReferences},
	{name: "settings", rule: "the store has its secret and its counter", run: (*audit).checkSettings},
	{name: "words", rule: "recurring strings are stored once, are not empty, and none in use is missing",
		run: (*audit).checkWords},
	{name: "addresses", rule: "every Mecha has an address, and no two differ in letter case alone",
		run: (*audit).checkAddresses},
	{name: "directory", rule: "revisions differ, and a removed Mecha has neither profile nor live key",
		run: (*audit).checkDirectory},
	{name: "profiles", rule: "every profile can be read, and keeps the limits", run: (*audit).checkProfiles},
	{name: "keys", rule: "every key has the form of one", run: (*audit).checkKeys},
	{name: "positions", rule: "a place in the commit order is taken once", run: (*audit).checkPositions},
	{name: "states", rule: "state, open and times of a message agree", run: (*audit).checkStates},
	{name: "senders", rule: "a message came with a key of its sender", run: (*audit).checkSenders},
	{name: "conversations", rule: "a message names a conversation that began before it, or a label",
		run: (*audit).checkConversations},
	{name: "participants", rule: "the sender and the recipient of a message take part in its conversation",
		run: (*audit).checkParticipants},
	{name: "receipts", rule: "a receipt is later than its message and never takes its state back",
		run: (*audit).checkReceipts},
	{name: "deadlines", run: (*audit).checkDeadlines,
		rule: "a message that is overdue had a time by which it was to be acknowledged, " +
			"and an answer is later than its question"},
	{name: "attempts", rule: "an attempt is at a pending message, by its recipient", run: (*audit).checkAttempts},
	{name: "broadcasts", rule: "the messages to the Mechas of a crew stand together, and differ in their recipients alone",
		run: (*audit).checkBroadcasts},
	{name: "limits", rule: "a conversation with a limit exists, and holds no more messages than it counts",
		run: (*audit).checkLimits},
	{name: "learned", run: (*audit).checkLearned,
		rule: "what searches have learned is of Mechas that are there and want it, and no message keeps words for nothing"},
	{name: "chains", rule: "a message's receipts are one chain, and its state and times follow from them",
		run: (*audit).checkChains},
	{name: "mailboxes", run: (*audit).checkMailboxes,
		rule: "every message is once in the mailboxes of its recipient and its sender, or waits to be indexed"},
	{name: "joined", run: (*audit).checkJoined,
		rule: "every message is once in the index of its conversation and of the message that it answers, " +
			"or waits to be indexed"},
	{name: "removal", run: (*audit).checkRemoval,
		rule: "what removed messages leave is known, and what is left refers to nothing that could be removed"},
	{name: "payloads", rule: "every message has its payload, of the length that it says", run: (*audit).checkPayloads},
	{name: "contents", rule: "every payload is a JSON object with the SHA-256 that its message says", full: true,
		run: (*audit).checkContents},
	{name: "searches", rule: "the answers to searches can be read", run: (*audit).checkSearches},
	{name: "clock", rule: "no position is of a time that is yet to come", warns: true, run: (*audit).checkClock},
}

func init() { file.CheckBy(run) }

// audit is a running check of a file.
type audit struct {
	*file.Snapshot
	ids     *relay.IDs // nil if the secret is missing; then the result names messages by position
	opts    file.CheckOptions
	finding *file.Finding // of the present check
	step    int64         // the number of the present check, from 0
	steps   int64         // the number of checks
	result  file.CheckResult
}

// run is a file.Check by all rules. Memory does not grow with the file.
func run(ctx context.Context, o file.CheckOptions) (file.CheckResult, error) {
	began := time.Now()
	path, err := filepath.Abs(o.Path)
	if err != nil {
		return file.CheckResult{}, err
	}
	s, err := file.OpenSnapshot(ctx, path)
	if err != nil {
		return file.CheckResult{Path: path}, err
	}
	defer s.Close()
	a := &audit{Snapshot: s, opts: o, steps: int64(len(checks))}
	a.result = file.CheckResult{Path: path, Schema: s.Info.Version}
	a.prepare()
	for n, c := range checks {
		a.step = int64(n)
		a.progress(0, 1)
		if err := a.perform(c); err != nil {
			return a.result, err
		}
	}
	a.result.Took = time.Since(began)
	return a.result, ctx.Err()
}

// prepare reads the secret and the totals of the result. It ignores errors, which the
// checks will report.
func (a *audit) prepare() {
	a.result.Bytes, _ = a.Size()
	a.result.Messages, _ = a.Conn.Number("SELECT count(*) FROM message")
	a.result.Mechas, _ = a.Conn.Number("SELECT count(*) FROM mecha")
	var secret []byte
	_, err := a.Conn.Row(func(r *sqlite.Rows) { secret = r.Blob(0) }, "SELECT value FROM setting WHERE name = 'secret'")
	if err == nil && len(secret) > 0 {
		a.ids, _ = relay.NewIDs(secret)
	}
}

// perform makes one check and reports it. An error of SQLite counts as a fault.
func (a *audit) perform(c check) error {
	f := file.Finding{Check: c.name, Rule: c.rule, Warning: c.warns}
	a.finding = &f
	switch {
	case c.full && a.opts.Quick:
		f.Skipped = "it has to read every payload"
	default:
		if err := c.run(a); err != nil {
			if a.Conn.Ctx.Err() != nil {
				return a.Conn.Ctx.Err()
			}
			f.Fault("cannot be read: " + err.Error())
		}
	}
	if f.Skipped == "" {
		a.result.Checks++
	}
	if f.Warning {
		a.result.Warnings += f.Faults
	} else {
		a.result.Faults += f.Faults
	}
	if a.opts.Report != nil {
		a.opts.Report(f)
	}
	return nil
}

// progress reports how far the present check has come, and returns the error of the context.
func (a *audit) progress(done, total int64) error {
	if a.opts.Progress != nil && total > 0 {
		a.opts.Progress("checking", a.step*1000+done*1000/total, a.steps*1000)
	}
	return a.Conn.Ctx.Err()
}

// each calls f with every row of a query.
func (a *audit) each(f func(*sqlite.Rows), query string, args ...any) error {
	r := a.Conn.Query(query, args...)
	for n := 0; r.Next(); n++ {
		f(r)
		if n%1024 == 0 && a.Conn.Ctx.Err() != nil {
			r.Close()
			return a.Conn.Ctx.Err()
		}
	}
	return r.Close()
}

// message returns the id of the message at a position.
func (a *audit) message(p int64) string {
	if a.ids == nil {
		return fmt.Sprintf("position %d", p)
	}
	return string(a.ids.Message(relay.Position(p)))
}

// ofMessages reports every row of a query as a fault. A row is the position of a
// message and a reason.
func (a *audit) ofMessages(query string, args ...any) error {
	return a.each(func(r *sqlite.Rows) { a.finding.Fault(a.message(r.Int(0)) + ": " + r.Text(1)) }, query, args...)
}

// ofRows reports every row of a query as a fault. A row is a text.
func (a *audit) ofRows(query string, args ...any) error {
	return a.each(func(r *sqlite.Rows) { a.finding.Fault(r.Text(0)) }, query, args...)
}

func (a *audit) checkFile() error {
	pragma := "PRAGMA integrity_check"
	if a.opts.Quick {
		pragma = "PRAGMA quick_check"
	}
	return a.each(func(r *sqlite.Rows) {
		if text := r.Text(0); text != "ok" {
			a.finding.Fault(text)
		}
	}, pragma)
}

func (a *audit) checkReferences() error {
	return a.each(func(r *sqlite.Rows) {
		a.finding.Fault(fmt.Sprintf("%s %d: there is no such %s", r.Text(0), r.Int(1), r.Text(2)))
	}, "PRAGMA foreign_key_check")
}

// checkSchema compares the tables, indexes and triggers of the file with schema.sql.
func (a *audit) checkSchema() error {
	if a.Info.Version < file.CurrentSchema() {
		a.finding.Skipped = fmt.Sprintf("the file is of schema %d; relay serve brings it up to date", a.Info.Version)
		return nil
	}
	c, err := sqlite.OpenMemory()
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Script(a.opts.Schema); err != nil {
		return err
	}
	want, err := readSchema(c)
	if err != nil {
		return err
	}
	have, err := readSchema(a.Conn)
	if err != nil {
		return err
	}
	for _, part := range want {
		if !slices.Contains(have, part) {
			a.finding.Fault("missing: " + part)
		}
	}
	for _, part := range have {
		if !slices.Contains(want, part) && !isLitestreams(part) {
			a.finding.Fault("not the relay's: " + part)
		}
	}
	return nil
}

// isLitestreams reports whether a part of a file's schema is one of the two tables that
// Litestream makes in each database that it copies.
func isLitestreams(part string) bool {
	return strings.HasPrefix(part, "table _litestream_seq: ") || strings.HasPrefix(part, "table _litestream_lock: ")
}

var (
	sqlComment = regexp.MustCompile(`--[^\n]*`)
	sqlAround  = regexp.MustCompile(` ?([(),]) ?`)
)

// readSchema reads the SQL of every part of a file's schema, without comments and line
// breaks, which differ in an upgraded file. It leaves out SQLite's own tables.
func readSchema(c *sqlite.Conn) (parts []string, err error) {
	r := c.Query(`SELECT type || ' ' || name || ': ' || coalesce(sql, '') FROM sqlite_schema
		WHERE name NOT LIKE 'sqlite\_stat%' ESCAPE '\' ORDER BY type, name`)
	for r.Next() {
		text := strings.Join(strings.Fields(sqlComment.ReplaceAllString(r.Text(0), "")), " ")
		parts = append(parts, sqlAround.ReplaceAllString(text, "$1"))
	}
	return parts, r.Close()
}

func (a *audit) checkSettings() error {
	var secret []byte
	version, indexed, hashed, others := false, false, false, 2
	err := a.each(func(r *sqlite.Rows) {
		switch r.Text(0) {
		case "secret":
			secret = slices.Clone(r.Blob(1))
		case "keys_version":
			_, version = r.Value(1).(int64)
		case "indexed_upto":
			_, indexed = r.Value(1).(int64)
		case "words_indexed_upto":
			_, hashed = r.Value(1).(int64)
		case "last_position", "clock":
			if n, is := r.Value(1).(int64); is && n >= 0 {
				others--
			}
		}
	}, "SELECT name, value FROM setting")
	if err != nil {
		return err
	}
	if len(secret) != secretBytes {
		a.finding.Fault(fmt.Sprintf("the secret has %d bytes, not %d: the ids of messages depend on it",
			len(secret), secretBytes))
	}
	if !version {
		a.finding.Fault("keys_version is not a number: a server would not notice changed keys")
	}
	if others != 0 {
		a.finding.Fault("last_position and clock are not both numbers: " +
			"a position could be given out twice, and a wrong clock be believed")
	}
	if !indexed {
		a.finding.Fault("indexed_upto is not a number: every read would scan all messages")
	}
	if !hashed {
		a.finding.Fault("words_indexed_upto is not a number: every look at a word would scan all words")
	}
	return nil
}

func (a *audit) checkClock() error {
	latest := int64(0)
	for _, table := range slices.Concat(ordered, []string{"search", "push"}) {
		n, err := a.Conn.Number("SELECT max(position) FROM " + table)
		if err != nil {
			return err
		}
		latest = max(latest, n)
	}
	if ahead := time.Until(relay.Position(latest).Time()); ahead > clockAhead {
		a.finding.Fault(fmt.Sprintf("the newest position is of %s, %v from now: "+
			"if this clock is right, created_at will stand still until then",
			relay.FormatTime(relay.Position(latest).Time()), ahead.Round(time.Second)))
	}
	return nil
}

// ordered has the tables whose rows have a place in the commit order, the largest first.
var ordered = []string{"message", "receipt", "kept_nonce"}
