package cmd_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"relay/db/dbtest"
	"relay/db/look"
	"relay/db/relay"
	"relay/db/scratch"
)

// benchReport is what the tests read of relay bench --json.
type benchReport struct {
	CPUs     int
	Duration float64 `json:"duration_seconds"`
	URL      string
	Stored   int `json:"stored_messages"`
	Rows     []benchRow
	text     string // as it was printed
}

type benchRow struct {
	Stage, Case string
	At          int
	PerSecond   float64 `json:"per_second"`
	P50         float64 `json:"p50_us"`
	P99         float64 `json:"p99_us"`
	P999        float64 `json:"p99_9_us"`
	Ratio       float64
	Bytes       float64 `json:"bytes_per_socket"`
	ServerCPU   float64 `json:"server_cpu_us"`
	Operations  int
	Failed      int
	Rounds      int
	Others      *float64 `json:"others_cpu_share"`
	Doubts      []string
}

var tinyBench = []string{"bench", "--json", "--duration", "120ms", "--repeats", "1", "--connections", "1,4",
	"--mechas", "10", "--sockets", "3", "--messages", "250", "--profiles", "20", "--payload", "100"}

// measured runs a bench in short rounds. On a busy machine nothing may end
// within such a round: then it runs again, in longer ones. It gives how often it
// ran, too.
func measured(t *testing.T, args ...string) (r benchReport, times int) {
	t.Helper()
	for times, d := range []time.Duration{40 * time.Millisecond, 300 * time.Millisecond, time.Second} {
		text := mustRelay(t, append(slices.Clone(args), "--duration", d.String())...)
		r = parse[benchReport](t, []byte(text))
		r.text = text
		if r.Duration != d.Seconds() {
			t.Errorf("rounds of %v s, want %v", r.Duration, d)
		}
		if !slices.ContainsFunc(r.Rows, benchRow.empty) {
			return r, times + 1
		}
	}
	return r, 3
}

func (row benchRow) isRatio() bool { return row.Case == "ratio" || strings.Contains(row.Case, "÷") }

// empty tells that too little time was measured.
func (row benchRow) empty() bool {
	switch {
	case row.isRatio():
		return row.Ratio <= 0
	case row.Stage == "idle" || row.Stage == "start" || row.Stage == "sync":
		return false // they do not take a time
	}
	return row.Operations < 1
}

const benchRounds = 2

func TestBenchMeasuresEveryStageAndLeavesNothingBehind(t *testing.T) {
	notQuickButForRaces(t)
	t.Parallel()
	dir := t.TempDir()
	r, _ := measured(t, append(slices.Clone(tinyBench), "--dir", dir, "--repeats", strconv.Itoa(benchRounds))...)
	wantFiles(t, dir)
	var cases []string
	othersKnown := 0
	for _, row := range r.Rows {
		name := fmt.Sprintf("%s/%s/%d", row.Stage, row.Case, row.At)
		cases = append(cases, name)
		// On a busy machine a search may find all places taken. Its row must then say so.
		refused := row.Stage == "search" && strings.Contains(strings.Join(row.Doubts, "; "), "503 overloaded")
		if row.Rounds != benchRounds || row.Failed != 0 && !refused {
			t.Errorf("%s: %+v", name, row)
		}
		switch {
		case row.isRatio():
			if row.Ratio <= 0 {
				t.Errorf("%s: %+v", name, row)
			}
		case row.Stage == "idle": // what so few sockets take drowns in garbage
		case row.Stage == "start":
			if row.P50 <= 0 {
				t.Errorf("%s: %+v", name, row)
			}
		case row.Stage == "sync":
			if row.PerSecond <= 0 || row.Operations != benchRounds*250 && row.Operations != benchRounds*249 {
				t.Errorf("%s: %+v", name, row)
			}
		default:
			if row.P50 <= 0 || row.P50 > row.P99 || row.P99 > row.P999 || row.Operations < 1 {
				t.Errorf("%s: %+v", name, row)
			}
		}
		if row.Others != nil {
			othersKnown++
		}
	}
	// On a busy machine a round may end before the watcher's first look. Its row is then empty.
	if _, err := os.Stat("/proc/self/stat"); err == nil && othersKnown == 0 {
		t.Error("no row says what others took of the machine")
	}
	want := []string{"send/durable/1", "send/lean/1", "send/bare/1", "send/durable ÷ lean/1",
		"send/durable/4", "send/lean/4", "send/bare/4", "send/durable ÷ lean/4",
		"socket/POST/1", "socket/socket, 1 under way/1", "socket/socket, 64 under way/1", "socket/socket, 1 under way ÷ POST/1", "socket/socket, 64 under way ÷ POST/1",
		"socket/POST/8", "socket/socket, 1 under way/8", "socket/socket, 64 under way/8", "socket/socket, 1 under way ÷ POST/8", "socket/socket, 64 under way ÷ POST/8",
		"push/send to socket/1", "push/send to 201/1", "push/201 to socket/1", "ack/send to receipt/1", "ack/send to socket/1", "ack/send to receipt/4", "ack/send to socket/4",
		"fanout/send to last socket/1", "fanout/send to last socket/3", "idle/memory a socket/3", "history/pages of 100/1", "history/pages of 100/8",
		"sync/pending, each acked/1", "sync/after a cursor, acked before/1", "search/20 profiles/1", "search/20 profiles/8",
		"start/stopped, until ready/0", "start/stopped, until the first 201/0", "start/stopped, until a search is answered/0",
		"start/killed, until ready/0", "start/killed, until the first 201/0", "start/killed, until a search is answered/0"}
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		want = slices.DeleteFunc(want, func(s string) bool { return strings.HasPrefix(s, "idle") })
	}
	if !slices.Equal(cases, want) || r.CPUs < 1 {
		t.Errorf("it shows %q", cases)
	}
	r.wantPictures(t, "throughput.svg", "p99.svg", "cpu.svg")
}

// wantPictures draws a report: of these pictures, those of which it has figures, and no others.
func (r benchReport) wantPictures(t *testing.T, pictures ...string) {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		return
	}
	if !slices.ContainsFunc(r.Rows, func(row benchRow) bool {
		return row.ServerCPU > 0 && (row.Stage == "send" || row.Stage == "ack")
	}) {
		pictures = slices.DeleteFunc(pictures, func(p string) bool { return p == "cpu.svg" }) // on a busy machine, or not on Linux
	}
	file, dir := filepath.Join(t.TempDir(), "figures.json"), filepath.Join(t.TempDir(), "made", "pictures")
	if err := os.WriteFile(file, []byte(r.text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(scratch.Python(t), "../contrib/benchmarks/draw.py", dir, file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	slices.Sort(pictures)
	wantFiles(t, dir, pictures...)
}

func TestBenchPrintsATable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	out := mustRelay(t, "bench", "--dir", dir, "--only", "send", "--duration", "30ms", "--repeats", "1", "--connections", "2", "--mechas", "2")
	for _, text := range []string{"RATE/S", "durable ", "lean ", "durable ÷ lean", "P99.9", "OTHERS"} {
		if !strings.Contains(out, text) {
			t.Errorf("it does not print %q, but\n%s", text, out)
		}
	}
	wantFiles(t, dir)
}

func TestBenchFillsAFileAndUsesItAgain(t *testing.T) {
	notQuick(t)
	notShort(t)
	t.Parallel()
	db, dir := tempDB(t), t.TempDir()
	const stored, many, few = 3000, "3,000 stored", "300 stored"
	args := []string{"bench", "--json", "--repeats", "1", "--connections", "2", "--mechas", "10",
		"--dir", dir, "--only", "scale", "--stored", strconv.Itoa(stored), "--db", db}
	messages := func() int {
		in, err := look.Inspect(db)
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		all, err := dbtest.Messages(t.Context(), in, relay.HistoryQuery{})
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	before := stored
	for range 2 {
		r, times := measured(t, args...)
		var cases []string
		sent := 0
		for _, row := range r.Rows {
			cases = append(cases, fmt.Sprintf("%s/%d", row.Case, row.At))
			if row.Failed != 0 || !row.isRatio() && row.P50 <= 0 || row.isRatio() && row.Ratio <= 0 {
				t.Errorf("%+v", row)
			}
			sent += row.Operations
		}
		want := []string{"sends, " + few + "/2", "sends, " + many + "/2", "ratio/2",
			"first page of 100, " + few + "/1", "last page of 100, " + few + "/1", "first page of 100, " + many + "/1", "last page of 100, " + many + "/1",
			"first page of 100, " + few + ", beside a sender/1", "last page of 100, " + few + ", beside a sender/1",
			"first page of 100, " + many + ", beside a sender/1", "last page of 100, " + many + ", beside a sender/1"}
		if !slices.Equal(cases, want) || r.Stored != stored {
			t.Errorf("%d stored: %q", r.Stored, cases)
		}
		r.wantPictures(t, "stored.svg")
		// Only what was measured has come on top.
		if n := messages(); n < before || n > before+3000*times {
			t.Errorf("%d messages, after %d", n, before)
		} else {
			before = n
		}
	}
	wantFiles(t, dir)

	// A file with other Mechas belongs to somebody.
	issue(t, db, "a^demo")
	before = messages()
	runRelay(t, args...).wantCode(t, 1, db, "not a file that relay bench has made", "a^demo")
	if n := messages(); n != before {
		t.Errorf("%d messages were added", n-before)
	}
	wantFiles(t, dir)
}

func TestBenchOfARelayThatRuns(t *testing.T) {
	notQuick(t)
	t.Parallel()
	db := tempDB(t)
	s := startServer(t, db)
	r, _ := measured(t, append(slices.Clone(tinyBench), "--url", s.url, "--db", db, "--only", "send,push")...)
	if len(r.Rows) != 7 || r.URL != s.url || r.Rows[0].Case != "durable" || r.Rows[0].Operations < 1 {
		t.Errorf("%+v", r)
	}
	if left := mustRelay(t, "mecha", "list", "--db", db); strings.Contains(left, "^bench") {
		t.Errorf("Mechas are left behind:\n%s", left)
	}
	for line := range strings.Lines(mustRelay(t, "key", "list", "--json", "--db", db)) {
		if k := parse[struct {
			RevokedAt *time.Time `json:"revoked_at"`
		}](t, []byte(line)); k.RevokedAt == nil {
			t.Errorf("a key still works: %s", line)
		}
	}
	noted := map[string]int{}
	for _, act := range audit(t, db) {
		noted[act.By.Command+": "+act.What]++
	}
	if noted["bench: key_issued"] < 10 || noted["bench: mecha_removed"] != noted["bench: key_issued"] || len(noted) != 2 {
		t.Errorf("the audit log has %v", noted)
	}
	// The figures from before a limit of the relay stopped it are not lost.
	limited := runRelay(t, append(tinyBench, "--url", s.url, "--db", db, "--only", "push,fanout", "--sockets", "17")...)
	limited.wantCode(t, 1, "fanout", "too_many_sockets")
	if r := parse[benchReport](t, []byte(limited.out)); len(r.Rows) != 4 {
		t.Errorf("%+v", r)
	}
	if left := mustRelay(t, "mecha", "list", "--db", db); strings.Contains(left, "^bench") {
		t.Errorf("Mechas are left behind:\n%s", left)
	}
	if resp, err := client.Get(s.url + "/readyz"); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("%v, %v", resp, err)
	}
}

func TestBenchSaysAheadThatFilesWillNotDo(t *testing.T) {
	tool(t, "sh")
	if _, err := os.Stat("/proc/self/limits"); err != nil {
		t.Skip("the limit is not to be seen here")
	}
	dir := t.TempDir()
	c := exec.Command("sh", "-c", `ulimit -n 400; exec "$0" bench --only idle --sockets 1000 --connections 1 --dir "$1"`, binary, dir)
	finish(t, c, nil, "").wantCode(t, 1, "relay bench needs 1100 open files, and 400 are allowed", "ulimit -n 1100")
	wantFiles(t, dir)
}

// children returns the processes that a process has started. Only Linux tells.
func children(t *testing.T, pid int) []string {
	t.Helper()
	list, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		t.Skip("the children of a process are not to be seen here")
	}
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	all := strings.Fields(string(list))
	for _, name := range threads {
		if more, err := os.ReadFile(name); err == nil {
			all = append(all, strings.Fields(string(more))...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func TestAnInterruptedBenchLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	notOnWindows(t, "there is no SIGINT")
	signals := []os.Signal{os.Interrupt}
	if scratch.Long(t) {
		signals = append(signals, syscall.SIGTERM)
	}
	for _, sig := range signals {
		dir := t.TempDir()
		s := launch(t, exec.Command(binary, "bench", "--dir", dir, "--only", "send", "--duration", "1m", "--connections", "2"), nil)
		var servers []string
		eventually(t, patience, "two servers run, one on a database of its own", func() bool {
			servers = children(t, s.cmd.Process.Pid)
			found, _ := filepath.Glob(filepath.Join(dir, "*", "*.db-wal"))
			return len(found) == 1 && len(servers) == 2
		})
		if code := s.signal(sig); code != 1 || !strings.Contains(s.stderr.String(), "interrupted; nothing is left behind") || s.stdout.String() != "" {
			t.Errorf("exit %d\n%s%s", code, s.stdout, s.stderr)
		}
		wantFiles(t, dir)
		for _, pid := range servers {
			if _, err := os.Stat("/proc/" + pid); err == nil {
				t.Errorf("the server %s still runs", pid)
			}
		}
	}
}

func TestABenchWhoseServerDiesSaysSo(t *testing.T) {
	notOnWindows(t, "processes have no children there")
	dir := t.TempDir()
	s := launch(t, exec.Command(binary, "bench", "--dir", dir, "--only", "push", "--duration", "1m"), nil)
	var servers []string
	eventually(t, patience, "a server runs", func() bool {
		servers = children(t, s.cmd.Process.Pid)
		found, _ := filepath.Glob(filepath.Join(dir, "*", "*.db-wal"))
		return len(found) == 1 && len(servers) == 1
	})
	pid, err := strconv.Atoi(servers[0])
	if err != nil {
		t.Fatal(err)
	}
	if p, err := os.FindProcess(pid); err != nil || p.Kill() != nil {
		t.Fatal("it cannot be killed", err)
	}
	if code := s.wait(); code != 1 || s.stdout.String() != "" {
		t.Errorf("exit %d\n%s%s", code, s.stdout, s.stderr)
	}
	wantFiles(t, dir)
}

func TestBenchChecksWhatIsAsked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, c := range []struct{ args, says string }{
		{"--only nonsense", `unknown stage "nonsense"`}, {"--connections 0", "minimum is"}, {"--duration 1ms", "minimum is"}, {"--payload 5", "--payload"},
		{"--url localhost", "--url"}, {"--only scale", "--stored"}, {"--stored 5", "at least 1000"},
		{"--stored 1000 --stored-over 0s", "--stored-over"}, {"--stored 1000 --url http://127.0.0.1:1", "combined with --url"}, {"now.json", "no arguments"},
		{"--attacks sends", "--only fairness"}, {"--only fairness --attacks nonsense", `unknown attack "nonsense"`}, {"--only fairness --url http://127.0.0.1:1", "combined with --url"}, {"--repeats 0", "minimum is"},
		{"--only fairness --db kept.db", "combined with --db"}, {"--only send,fairness --stored 1000", "combined with --db"},
	} {
		runRefused(t, append([]string{"bench", "--dir", dir}, strings.Fields(c.args)...), nil).wantCode(t, 2, c.says, "Try: relay bench --help")
	}
	runRelay(t, "bench", "--dir", filepath.Join(dir, "nowhere")).wantCode(t, 1, "--dir", "nowhere")
	runRelay(t, "bench", "--url", "http://127.0.0.1:1", "--db", filepath.Join(dir, "none.db")).wantCode(t, 1, "no database at")
	wantFiles(t, dir)
}
