package cmd_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"relay/db/scratch"
)

// damagedMechas returns the number of Mechas in the index: some batches of 1000.
func damagedMechas(t testing.TB) int { return rounds(t, 1200, 2500) }

// damageable is a database of many Mechas with an index that is complete: made
// once, and copied.
var damageable struct {
	sync.Once
	dir  string
	keys []agent
}

// indexed returns such a database, and two of its Mechas with keys.
func indexed(t *testing.T) (db, index string, keys []agent) {
	t.Helper()
	damageable.Do(func() { makeDamageable(t) })
	if damageable.keys == nil {
		t.Fatal("it could not be made: see the first of these tests")
	}
	db = tempDB(t)
	mustCopyFolder(t, damageable.dir, filepath.Dir(db))
	return db, db + ".index", slices.Clone(damageable.keys)
}

// mustCopyFolder copies what is in a folder.
func mustCopyFolder(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, e os.DirEntry, err error) error {
		copied := filepath.Join(to, strings.TrimPrefix(path, from))
		if err == nil && e.IsDir() {
			return os.MkdirAll(copied, 0o700)
		}
		content, err := os.ReadFile(path)
		return errors.Join(err, os.WriteFile(copied, content, 0o600))
	})
	if err != nil {
		t.Fatal(err)
	}
}

func makeDamageable(t *testing.T) {
	t.Helper()
	damageable.dir = filepath.Join(filepath.Dir(binary), "damageable") // for longer than this test
	if err := os.Mkdir(damageable.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	db := filepath.Join(damageable.dir, "relay.db")
	keys := issue(t, db, "asker^damage", "friend^damage")
	var lines strings.Builder
	for i := range damagedMechas(t) {
		fmt.Fprintf(&lines, `{"mecha_id":"m%d^damage","profile":{"description":"knows the number%d and the weather"}}`+"\n", i, i)
	}
	register(t, db, lines.String())
	s := startProcess(t, db)
	s.wantAllFound(keys[0])
	if code := s.terminate(); code != 0 {
		t.Fatalf("exit %d:\n%s", code, s.stderr)
	}
	damageable.keys = keys
}

// wantAllFound waits until every Mecha is found, and each of some in its place.
func (s *server) wantAllFound(a agent) {
	s.t.Helper()
	eventually(s.t, patience, "all are found", func() bool {
		return parse[struct{ Total int }](s.t, s.search(a, "weather")).Total == damagedMechas(s.t)
	})
	for _, i := range []int{0, damagedMechas(s.t) / 2, damagedMechas(s.t) - 1} {
		want := fmt.Sprintf("m%d^damage", i)
		for _, query := range []string{fmt.Sprintf("number%d", i), want} {
			// Not at once: on a busy machine a search may run out of its time.
			eventually(s.t, patience, fmt.Sprintf("%q finds %s first", query, want), func() bool {
				got := s.found(a, query)
				return len(got) > 0 && got[0] == want
			})
		}
	}
}

// wantServed expects that a message is sent, received and acknowledged.
func (s *server) wantServed(from, to agent) {
	s.t.Helper()
	m := s.send(from, to.Address, `{}`)
	h := s.history(to, "direction=in")
	if len(h) == 0 || h[len(h)-1].MessageID != m.MessageID {
		s.t.Errorf("%s is not in %+v", m.MessageID, h)
	}
	s.ask(to, "POST", "/api/v1/messages/"+m.MessageID+"/ack", `{"status":"completed","client_ts":"2026-01-01T00:00:00Z"}`).want(s.t, 200)
}

// wantCleanLog expects every line to be in the form of the log.
func (s *server) wantCleanLog() {
	s.t.Helper()
	for line := range strings.Lines(s.stderr.String()) {
		if !regexp.MustCompile(`^time=\S+ level=[A-Z]+ msg=`).MatchString(line) {
			s.t.Errorf("not of the log's form: %q", line)
		}
	}
}

// Whatever became of the index's files, the server starts, says in one line
// what it does about it, and serves messages meanwhile.
func TestADamagedIndexIsMadeAnewWhileMessagesAreServed(t *testing.T) {
	notQuick(t)
	notOnWindows(t, "there is no SIGTERM")
	t.Parallel()
	anew := `level=WARN msg="rebuilding the search index" folder=\S+ cause="search: damaged index: `
	kinds := map[string]struct {
		damage func(t *testing.T, index string)
		says   string
	}{
		"truncated root.bolt":     {func(t *testing.T, index string) { mustTruncate(t, filepath.Join(index, "store", "root.bolt"), 10_000) }, anew},
		"truncated segment":       {func(t *testing.T, index string) { halve(t, largestSegment(t, index)) }, `level=WARN msg="removing a damaged or unfinished segment of the search index"`},
		"removed segments":        {removeSegments, `level=WARN msg="`},
		"emptied index_meta.json": {func(t *testing.T, index string) { mustTruncate(t, filepath.Join(index, "index_meta.json"), 0) }, anew},
		"removed index_meta.json": {func(t *testing.T, index string) { mustRemove(t, filepath.Join(index, "index_meta.json")) }, anew + "index_meta.json is missing"},
		"removed store":           {func(t *testing.T, index string) { mustRemove(t, filepath.Join(index, "store")) }, anew},
		"removed folder":          {mustRemove, `level=INFO msg="creating the search index: none exists yet" folder=`},
	}
	for name, c := range kinds {
		if !scratch.Long(t) && strings.HasPrefix(name, "removed") && name != "removed segments" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, index, keys := indexed(t)
			c.damage(t, index)
			s := startProcess(t, db)
			s.wantServed(keys[0], keys[1])
			s.await(s.stderr, c.says)
			s.wantAllFound(keys[0])
			s.await(s.stderr, `msg="the search index is up to date"`)
			s.wantServed(keys[1], keys[0])
			s.wantCleanLog()
			if code := s.terminate(); code != 0 {
				t.Errorf("exit %d:\n%s", code, s.stderr)
			}

			// The new index holds. If bleve went on from an older state, the server says so
			// again until a change has been written.
			s = startProcess(t, db)
			s.wantAllFound(keys[0])
			if c.says == anew && strings.Contains(s.stderr.String(), "level=WARN") {
				t.Errorf("it is damaged again:\n%s", s.stderr)
			}
		})
	}
}

// Another process has the index: messages are served, and searches as soon as it lets go.
func TestAnIndexThatIsInUseHoldsUpNoMessages(t *testing.T) {
	notOnWindows(t, "there is no SIGTERM")
	t.Parallel()
	db, index, keys := indexed(t)
	other, err := bbolt.Open(filepath.Join(index, "store", "root.bolt"), 0o600, &bbolt.Options{Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	s := startProcess(t, db)
	s.await(s.stderr, `level=ERROR msg="searches are refused[^"]*" folder=\S+ cause="search: the index is in use by another process"`)
	s.wantServed(keys[0], keys[1])
	ans := s.ask(keys[0], "POST", "/api/v1/search", `{"query":"weather"}`, "Prefer", "wait=5")
	ans.wantProblem(t, 503, "overloaded")
	if ans.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, "searches are answered", func() bool {
		return s.ask(keys[0], "POST", "/api/v1/search", `{"query":"weather"}`, "Prefer", "wait=5").status == 200
	})
	s.wantAllFound(keys[0])
	if n := strings.Count(s.stderr.String(), "level=ERROR"); n != 1 {
		t.Errorf("%d errors in the log:\n%s", n, s.stderr)
	}
	if code := s.terminate(); code != 0 {
		t.Errorf("exit %d:\n%s", code, s.stderr)
	}
}

func mustTruncate(t *testing.T, name string, size int64) {
	t.Helper()
	if err := os.Truncate(name, size); err != nil {
		t.Fatal(err)
	}
}

func halve(t *testing.T, name string) {
	t.Helper()
	mustTruncate(t, name, sizeOf(t, name)/2)
}

func mustRemove(t *testing.T, name string) {
	t.Helper()
	if err := os.RemoveAll(name); err != nil {
		t.Fatal(err)
	}
}

// removeSegments removes them all: any one may be left over from a merge, and
// then nothing is missing without it.
func removeSegments(t *testing.T, index string) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(index, "store", "*.zap"))
	if err != nil || len(all) == 0 {
		t.Fatal(all, err)
	}
	for _, name := range all {
		mustRemove(t, name)
	}
}

// largestSegment names the segment that holds the most, which is in use.
func largestSegment(t *testing.T, index string) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(index, "store", "*.zap"))
	if err != nil || len(names) == 0 {
		t.Fatal("no segment", err)
	}
	return slices.MaxFunc(names, func(a, b string) int { return int(sizeOf(t, a) - sizeOf(t, b)) })
}
