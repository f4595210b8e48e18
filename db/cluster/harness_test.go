//go:build cluster

package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"relay/db"
	"relay/db/file"
	"relay/db/relay"
	"relay/db/replication"
	"relay/db/scratch"
)

// A machine has a file and a folder, and can be started and stopped.
type machine struct {
	testing.TB
	name   string
	config Config
	dbPath string
	log    *logBook
	doubt  time.Duration // of the node; 0: as usual
	fatal  chan error    // what the store, or the node, stopped with

	*Node
	db *db.DB
}

// clusterOf returns machines that are not started, with a cluster file for them.
func clusterOf(t testing.TB, names ...string) (all []*machine) {
	t.Helper()
	var members []Member
	for _, name := range names {
		members = append(members, Member{name, scratch.Addr(t)})
	}
	f, err := NewFile(members)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		all = append(all, newMachine(t, f, name))
	}
	return all
}

func newMachine(t testing.TB, f *File, name string) *machine {
	dir := scratch.Dir(t)
	m := &machine{TB: t, name: name, dbPath: filepath.Join(dir, name+".db"), log: &logBook{t: t, name: name}, fatal: make(chan error, 2)}
	m.config = Config{File: f, Node: name, Dir: filepath.Join(dir, name+".cluster"), Version: "v-" + name,
		Logger: slog.New(slog.NewTextHandler(m.log, nil)),
		Fatal:  m.stopped,
		Snapshot: func(ctx context.Context, to string) error {
			_, err := file.Backup(ctx, file.BackupOptions{From: m.dbPath, To: to, Schema: schema(t)})
			return err
		},
	}
	t.Cleanup(m.stop)
	return m
}

func (m *machine) stopped(err error) {
	select {
	case m.fatal <- err:
	default:
	}
}

func schema(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile("../../schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// start starts a machine as relay serve does: one without a file gets that of another.
func (m *machine) start() {
	m.Helper()
	if err := m.tryToStart(false); err != nil {
		m.Fatal(m.name, err)
	}
}

func (m *machine) tryToStart(founds bool) (err error) {
	ctx, cancel := context.WithTimeout(m.Context(), longest)
	defer cancel()
	if m.Node, err = Start(ctx, m.config); err != nil {
		return err
	}
	if m.doubt > 0 {
		m.Node.doubt = m.doubt
	}
	if _, err := os.Stat(m.dbPath); err != nil && !founds {
		if err := m.FetchSnapshot(ctx, m.dbPath); err != nil {
			return err
		}
	}
	m.db, err = db.Open(db.Options{Path: m.dbPath, Schema: schema(m.TB), Serve: true, Create: founds, Log: &replication.Following{Log: m.Node, Found: founds, Keeps: m.KeepsLog},
		Gate: gate{m.Node}, ClockSkew: time.Minute, Logger: m.config.Logger, Fatal: m.stopped})
	if err == nil {
		m.Attach(m.db)
	}
	return err
}

// A gate is the db.Options.Gate of a machine: keys change without waiting for the other ones.
type gate struct{ *Node }

func (gate) Seen(context.Context, uint64) error              { return nil }
func (gate) Status(context.Context) (json.RawMessage, error) { return json.RawMessage("{}"), nil }

// stop stops a machine, which may be stopped already.
func (m *machine) stop() {
	m.Helper()
	if m.db != nil {
		m.db.Close() // a store that has failed says so again
		m.db = nil
	}
	if m.Node != nil {
		if err := m.Node.Close(); err != nil {
			m.Error(err)
		}
		m.Node = nil
	}
}

// startedTrio starts three machines.
func startedTrio(t testing.TB) []*machine {
	t.Helper()
	all := clusterOf(t, "n1", "n2", "n3")
	startAll(all...)
	return all
}

// startAll starts machines; the first one founds the log.
func startAll(all ...*machine) {
	all[0].Helper()
	var ready sync.WaitGroup
	for i, m := range all {
		ready.Go(func() {
			if err := m.tryToStart(i == 0); err != nil {
				m.Error(m.name, err)
			}
		})
	}
	ready.Wait()
	if all[0].Failed() {
		all[0].FailNow()
	}
	for _, m := range all {
		m.waitFresh()
	}
}

// longest is how long a test waits for what comes about, even on a busy machine. At a load of 30 a node
// took 19 s until it was sure of the log. An election takes 4 to 9 s, and as long again after a split vote.
const longest = 3 * time.Minute

// wait waits until a condition holds.
func wait(t testing.TB, what string, condition func() bool) {
	t.Helper()
	until := time.Now().Add(longest)
	for !condition() {
		if time.Now().After(until) {
			t.Fatal("it did not come about:", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (m *machine) waitFresh() {
	m.Helper()
	wait(m.TB, m.name+" has the lease", m.Fresh)
}

// waitLevel waits until all machines have applied as much as the first one.
func waitLevel(all ...*machine) {
	all[0].Helper()
	for _, m := range all[1:] {
		wait(m.TB, m.name+" is level", func() bool { return m.db.Place().Applied >= all[0].db.Place().Applied })
	}
}

// issue makes a key at a machine.
func (m *machine) issue(address relay.Address) *relay.Key {
	m.Helper()
	k, err := m.db.Issue(&relay.IssueKey{At: time.Now(), Address: address})
	if err != nil {
		m.Fatal(m.name, err)
	}
	return k.Key
}

// message makes a message of a Mecha to itself.
func message(t testing.TB, k *relay.Key, text string) *relay.SendMessage {
	t.Helper()
	m := &relay.SendMessage{At: time.Now(), Key: k.Number, To: k.Mecha.Address, Payload: fmt.Appendf(nil, `{"text":%q}`, text)}
	if err := m.Validate(); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *machine) send(k *relay.Key, text string) error {
	m.Helper()
	_, err := m.db.Send(message(m.TB, k, text))
	return err
}

func (m *machine) mustSend(k *relay.Key, text string) {
	m.Helper()
	if err := m.send(k, text); err != nil {
		m.Fatal(m.name, err)
	}
}

// leader returns the machine that leads the log.
func leader(all []*machine) *machine {
	all[0].Helper()
	var found *machine
	wait(all[0].TB, "there is a leader", func() bool {
		for _, m := range all {
			if m.Node != nil && m.isAdmitted() && m.nats.JetStreamIsStreamLeader("$G", streamName) {
				found = m
				return true
			}
		}
		return false
	})
	return found
}

// waitLeader waits until the log has a leader. On a busy machine an election may take longer than a
// write waits.
func waitLeader(all []*machine) {
	all[0].Helper()
	leader(all)
}

// followers returns those that do not lead the log.
func followers(all []*machine) (others []*machine) {
	all[0].Helper()
	l := leader(all)
	for _, m := range all {
		if m != l {
			others = append(others, m)
		}
	}
	return others
}

// wantFatal waits until the machine has stopped on its own, and looks for words in the error.
func (m *machine) wantFatal(words string) {
	m.Helper()
	select {
	case err := <-m.fatal:
		if !strings.Contains(err.Error(), words) {
			m.Errorf("%s stopped with %v; want %q in it", m.name, err, words)
		}
	case <-time.After(longest):
		m.Fatal(m.name, "did not stop")
	}
}

// logBook keeps what a machine logs, and shows it with -v.
type logBook struct {
	t    testing.TB
	name string
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logBook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if testing.Verbose() {
		fmt.Fprintf(os.Stderr, "%s %s %s", time.Now().Format("05.000"), l.name, p)
	}
	return l.text.Write(p)
}

func (l *logBook) count(words string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), words)
}
