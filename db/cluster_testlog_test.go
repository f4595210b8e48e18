package db

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"relay/db/file"
	"relay/db/internal/engine"
	"relay/db/internal/sqlite"
	"relay/db/relay"
	"relay/db/replication"
	"relay/db/scratch"
)

// A gate is a Gate whose functions may be nil: then the node is fresh, and the others have seen all.
type gate struct {
	fresh func() bool
	seen  func(ctx context.Context, number uint64) error
}

func (g gate) Fresh() bool { return g.fresh == nil || g.fresh() }

func (g gate) Seen(ctx context.Context, number uint64) error {
	if g.seen == nil {
		return nil
	}
	return g.seen(ctx, number)
}

func (g gate) Status(context.Context) (json.RawMessage, error) { return json.RawMessage("{}"), nil }

// testLog is a log in memory. With faults, it behaves as badly as a log may: it loses
// envelopes and answers, has envelopes twice, late, and in another order than they were
// proposed, ends connections, delivers again what it has delivered, leaves entries out, and
// its clock jumps.
type testLog struct {
	mu      sync.Mutex
	random  *rand.Rand
	faults  bool
	silent  chan struct{} // not nil: it takes no envelope, and does not answer; each sends a token
	entries []replication.Entry
	first   uint64   // the number of the first entry that it still has
	late    [][]byte // envelopes that will come behind others
	ahead   time.Duration
	changed chan struct{} // closed at each change
}

func newTestLog(seed uint64) *testLog {
	return &testLog{random: rand.New(rand.NewPCG(seed, 5)), first: 1, changed: make(chan struct{})}
}

var errLost = errors.New("the connection to the log is lost")

func (l *testLog) Append(ctx context.Context, _ string, envelope []byte) error {
	l.mu.Lock()
	if silent := l.silent; silent != nil {
		l.mu.Unlock()
		select {
		case silent <- struct{}{}:
		default:
		}
		<-ctx.Done()
		return ctx.Err()
	}
	defer l.mu.Unlock()
	envelope = append([]byte(nil), envelope...)
	fault := 99
	if l.faults {
		fault = l.random.IntN(40)
	}
	switch fault {
	case 0:
		return errLost
	case 1:
		l.add(envelope)
		return errLost
	case 2:
		l.add(envelope)
	case 3, 4:
		l.late = append(l.late, envelope)
		return errLost
	case 5: // no answer comes
		l.add(envelope)
		l.mu.Unlock()
		<-ctx.Done()
		l.mu.Lock()
		return ctx.Err()
	}
	l.add(envelope)
	if len(l.late) > 0 && l.random.IntN(3) == 0 {
		l.add(l.late[0])
		l.late = l.late[1:]
	}
	return nil
}

// add adds an entry. The caller has the lock.
func (l *testLog) add(envelope []byte) {
	l.entries = append(l.entries, replication.Entry{Number: uint64(len(l.entries) + 1), At: time.Now().Add(l.ahead), Data: envelope})
	l.change()
}

func (l *testLog) change() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// set changes the log under its lock.
func (l *testLog) set(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	l.change()
}

func (l *testLog) length() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return uint64(len(l.entries))
}

// waitForLength waits until the log has so many entries, or stop is closed. It returns false
// in that case.
func (l *testLog) waitForLength(n uint64, stop <-chan struct{}) bool {
	for {
		l.mu.Lock()
		changed, length := l.changed, uint64(len(l.entries))
		l.mu.Unlock()
		if length >= n {
			return true
		}
		select {
		case <-changed:
		case <-stop:
			return false
		}
	}
}

// Follow delivers pieces of different lengths.
func (l *testLog) Follow(ctx context.Context, after uint64, deliver func([]replication.Entry) error) error {
	for {
		l.mu.Lock()
		changed, length := l.changed, uint64(len(l.entries))
		switch {
		case after > length:
			l.mu.Unlock()
			return replication.ErrLogBehind
		case after+1 < l.first:
			l.mu.Unlock()
			return replication.ErrLogTruncated
		}
		from, upto, ends := after, min(length, after+1+uint64(l.random.IntN(60))), false
		if l.faults {
			ends = l.random.IntN(50) == 0
			from -= min(from, uint64(l.random.IntN(3)))
		}
		piece := append([]replication.Entry(nil), l.entries[from:upto]...)
		if l.faults && len(piece) > 2 && l.random.IntN(30) == 0 {
			piece = slices.Delete(piece, len(piece)/2, len(piece)/2+1)
		}
		l.mu.Unlock()
		if len(piece) > 0 {
			if err := deliver(piece); err != nil {
				return err
			}
		}
		if after = upto; ends {
			return errLost
		}
		if upto < length {
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// view is a node's connection to the log, which can be cut.
type view struct {
	*testLog
	cut sync.RWMutex // locked: nothing is delivered
}

func (v *view) Follow(ctx context.Context, after uint64, deliver func([]replication.Entry) error) error {
	return v.testLog.Follow(ctx, after, func(entries []replication.Entry) error {
		v.cut.RLock()
		defer v.cut.RUnlock()
		return deliver(entries)
	})
}

// A node has a copy of the store, and can be started again.
type node struct {
	*testing.T
	*DB
	log     *view
	options Options
	prepare func(*DB)
	keeps   bool // read under mu
	mu      sync.Mutex
	changed *sync.Cond
	applied uint64 // as committed
	fatal   error
}

// newNode returns a node that is not started. prepare may be nil.
func newNode(t *testing.T, l *testLog, name string, o Options, prepare func(*DB)) *node {
	t.Helper()
	schema, err := os.ReadFile("../schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	n := &node{T: t, log: &view{testLog: l}, options: o, prepare: prepare}
	n.changed = sync.NewCond(&n.mu)
	n.options.Path, n.options.Schema, n.options.Serve = filepath.Join(scratch.Memory(t), name+".db"), string(schema), true
	n.options.ClockSkew = time.Minute
	f := &replication.Following{}
	if o.Log != nil {
		*f = *o.Log.(*replication.Following)
	}
	n.options.Log, f.Log = f, n.log
	f.Keeps = func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.keeps
	}
	n.options.Fatal = func(err error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.fatal = err
		n.changed.Broadcast()
	}
	return n
}

// found makes the node's file the first copy, and starts the node.
func (n *node) found() *node {
	n.Helper()
	o := n.options
	n.options = founding(o)
	n.options.Create = true
	n.start()
	n.options = o
	return n
}

// founding returns options by which a file becomes the first copy of its log.
func founding(o Options) Options {
	f := *o.Log.(*replication.Following)
	f.Found = true
	o.Log = &f
	return o
}

// copyOf makes the node's file of another node's one, which may be at work, and starts the node.
func (n *node) copyOf(other *node) *node {
	n.Helper()
	if _, err := file.Backup(n.Context(), file.BackupOptions{From: other.options.Path, To: n.options.Path, Schema: n.options.Schema}); err != nil {
		n.Fatal(err)
	}
	n.start()
	return n
}

func (n *node) start() {
	n.Helper()
	if err := n.tryToStart(); err != nil {
		n.Fatal(err)
	}
}

func (n *node) tryToStart() (err error) {
	d, err := open(n.options, func(d *DB) {
		replicated(d.w).Propose.Timeouts.Retry, replicated(d.w).Follow.Again = time.Millisecond, time.Millisecond
		replicated(d.w).Propose.Timeouts.Queued, replicated(d.w).Propose.Timeouts.Inflight, replicated(d.w).Propose.Timeouts.Closing = time.Hour, time.Hour, time.Minute // a busy machine may take long
		d.w.Add(arrivals{n: n})
		if n.prepare != nil {
			n.prepare(d)
		}
	})
	if err == nil {
		n.DB = d
		n.Cleanup(func() { d.Close() })
	}
	return err
}

func (n *node) stop() {
	n.Helper()
	if err := n.Close(); err != nil {
		n.Error(err)
	}
}

// arrivals is a room that tells the node what its store has applied.
type arrivals struct {
	engine.Quiet
	n *node
}

func (a arrivals) AfterCommit(t *engine.Tx) {
	a.n.mu.Lock()
	defer a.n.mu.Unlock()
	a.n.applied = replicated(t.Store).Replica.File.Applied
	a.n.changed.Broadcast()
}

// waitFor waits until the node has applied an entry.
func (n *node) waitFor(number uint64) {
	n.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	for n.applied < number && n.fatal == nil {
		n.changed.Wait()
	}
	if n.fatal != nil {
		n.Fatal(n.fatal)
	}
}

// catchUp waits until the node has applied all entries.
func (n *node) catchUp() {
	n.Helper()
	n.waitFor(n.log.length())
}

// wantFatal waits until the store has failed by an error.
func (n *node) wantFatal(want error) {
	n.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	for n.fatal == nil {
		n.changed.Wait()
	}
	if want != nil && !errors.Is(n.fatal, want) {
		n.Errorf("the node stopped with %v; want %v", n.fatal, want)
	}
}

func (n *node) keep(keeps bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.keeps = keeps
}

// rows returns all rows that copies share, with the place in the log. The index of messages is
// left out, since each node writes it when it likes; relay check compares it with the messages.
func (n *node) rows() []string {
	n.Helper()
	return contentsOf(n.T, n.options.Path, append([]string{"replica", "origin", "entry_nonce"}, shared[:len(shared)-5]...))
}

// wantSame compares the rows of stopped nodes.
func wantSame(nodes ...*node) {
	first := nodes[0]
	first.Helper()
	want := first.rows()
	for _, n := range nodes[1:] {
		got := n.rows()
		for i := range max(len(got), len(want)) {
			if i >= len(got) || i >= len(want) || got[i] != want[i] {
				first.Errorf("%s has %d rows, %s %d; row %d is\n%s\nwant\n%s", n.options.Path, len(got), first.options.Path, len(want), i,
					append(got, "nothing")[min(i, len(got))], append(want, "nothing")[min(i, len(want))])
				break
			}
		}
	}
	for _, n := range nodes {
		if _, said, r := checked(first.T, n.options.Path); r.Faults > 0 {
			first.Errorf("%s:\n%s", n.options.Path, said)
		}
	}
}

// issue makes a key by the node.
func (n *node) issue(address relay.Address) *relay.Key {
	n.Helper()
	k, err := n.Issue(&relay.IssueKey{At: time.Now(), Address: address})
	if err != nil {
		n.Fatal(err)
	}
	return k.Key
}

// message makes a message of a Mecha to itself.
func (n *node) message(k *relay.Key, nonce relay.NonceHash) *relay.SendMessage {
	n.Helper()
	m := &relay.SendMessage{At: time.Now(), Key: k.Number, To: k.Mecha.Address, Payload: []byte(`{}`), Nonce: nonce}
	if err := m.Validate(); err != nil {
		n.Fatal(err)
	}
	return m
}

// mustSend sends a message of a Mecha to itself.
func (n *node) mustSend(k *relay.Key, nonce relay.NonceHash) relay.Sent {
	n.Helper()
	sent, err := n.Send(n.message(k, nonce))
	if err != nil {
		n.Fatal(err)
	}
	return sent
}

// want fails the test unless err has a code.
func (n *node) want(code relay.Code, err error) {
	n.Helper()
	if relay.ErrorCode(err) != code {
		n.Errorf("%v, want %q", err, code)
	}
}

// occupy takes the write lock of the node's file, as another process would, until it is
// called again.
func (n *node) occupy() (free func()) {
	n.Helper()
	c, err := sqlite.Open(n.options.Path, sqlite.Writing)
	if err == nil {
		err = c.BeginWrite()
	}
	if err != nil {
		n.Fatal(err)
	}
	return func() {
		c.Rollback()
		c.Close()
	}
}

// execute changes the node's file by hand.
func (n *node) execute(statement string) error {
	n.Helper()
	c, err := sqlite.Open(n.options.Path, sqlite.Writing)
	if err != nil {
		return err
	}
	return errors.Join(c.Exec(statement), c.Close())
}

// count counts the rows of a table in the file of a stopped node.
func (n *node) count(table string) int {
	n.Helper()
	c, err := sqlite.Open(n.options.Path, sqlite.Reading)
	if err != nil {
		n.Fatal(err)
	}
	defer c.Close()
	rows, err := c.Number("SELECT count(*) FROM " + table)
	if err != nil {
		n.Fatal(err)
	}
	return int(rows)
}

// kindsOf counts the writes of an entry, by their types.
func kindsOf(e replication.Entry) map[string]int {
	kinds := map[string]int{}
	env, err := replication.ReadEnvelope(e.Data)
	if err != nil {
		return kinds
	}
	for _, w := range env.Writes {
		kinds[fmt.Sprintf("%T", w)]++
	}
	return kinds
}

// replicated is the log that the store of a node follows.
func replicated(w *engine.Store) *replication.Replication { return w.Log.(*replication.Replication) }
