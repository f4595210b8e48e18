package cmd_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"relay/db/scratch"
)

// The recipe of the page backups, with a folder as its target.
func TestWarmCopyByLitestreamAfterAKillOfBoth(t *testing.T) {
	notShort(t)
	notOnWindows(t, "there is no kill -9")
	t.Parallel()
	testWarmCopy(t, &litestreamCopier{t: t, program: litestream(t), folder: t.TempDir()})
}

// A copier keeps a copy of a database.
type copier interface {
	start(db string)
	// made waits until there is a copy that was begun after a time.
	made(after time.Time)
	kill()
	// restore puts the newest copy at db, and returns a time: what was answered before is in it.
	restore(db string) time.Time
	// most is how much of the newest may be missing.
	most() time.Duration
}

// The relay and what copies its file are killed together, in the middle of the load, and
// the relay continues from the copy, as on another machine. What is lost is the newest: all
// that was answered before the copy was begun is there. The senders send again what they
// are not sure of, with their Idempotency-Keys, and then each message is there once. No id
// is given out twice, and the recipient's cursor continues, though it may be the id of a
// message that was lost.
func testWarmCopy(t *testing.T, c copier) {
	w := &warm{t: t, copier: c, db: tempDB(t), given: map[string]string{}}
	n, senders := rounds(t, 1, 10), 16
	if scratch.Long(t) {
		senders = 64
	}
	for i, a := range issue(t, w.db, crowd(senders+1)...) {
		if i == senders {
			w.to = a
			continue
		}
		w.senders = append(w.senders, &warmSender{agent: a, warm: w})
	}
	w.start()
	w.cursor = w.server.send(w.to, w.to.Address, `{}`).MessageID
	w.given[w.cursor] = ""
	for range n {
		w.round()
	}
	w.compareAll()
}

// warm is one relay that is lost and continues from a copy, again and again.
type warm struct {
	t       *testing.T
	copier  copier
	db      string
	server  *server
	to      agent // the recipient of all messages
	senders []*warmSender
	cursor  string // the newest message that the recipient has seen

	mu     sync.Mutex
	given  map[string]string // all ids that were ever answered, with what was sent
	count  atomic.Int64
	copied chan struct{} // closed when there is a copy of this round's first messages
}

type warmSender struct {
	agent
	*warm
	letters []*warmLetter
}

type warmLetter struct {
	token    string
	id       string    // "" if there was no answer
	answered time.Time // when the 201 had come
	lost     bool      // it was answered, and the restored database does not have it
}

func (w *warm) start() {
	w.server = startProcess(w.t, w.db, "--rate-limit", "0", "--auth-failure-limit", "0", "--max-pending", "0")
	w.copier.start(w.db)
}

func (w *warm) each(f func(*warmSender)) { allAtOnce(w.t, w.senders, f) }

// round works, kills both, restores the copy elsewhere, and compares.
func (w *warm) round() {
	var killed time.Time
	dead := make(chan struct{})
	w.count.Store(0)
	w.copied = make(chan struct{})
	go func() {
		defer close(dead)
		eventually(w.t, patience, "messages", func() bool { return w.count.Load() > 200 })
		w.copier.made(time.Now())
		close(w.copied)
		more := w.count.Load() + 50 + rand.Int64N(int64(rounds(w.t, 500, 10_000)))
		eventually(w.t, patience, "more messages", func() bool { return w.count.Load() > more })
		killed = time.Now()
		var wg sync.WaitGroup
		wg.Go(w.copier.kill)
		wg.Go(w.server.kill)
		wg.Wait()
	}()
	var wg sync.WaitGroup
	wg.Go(w.read)
	w.each((*warmSender).work)
	wg.Wait()
	<-dead
	w.db = tempDB(w.t)
	safe := w.copier.restore(w.db)
	wantWhole(w.t, w.db)
	w.start()
	w.compare(safe, killed)
	w.goOn()
}

// work sends until the server is gone. The usual form sends few messages before there is a
// copy, because that takes seconds.
func (s *warmSender) work() {
	for {
		if !scratch.Long(s.t) && s.count.Load() > 400 {
			<-s.copied
		}
		l := &warmLetter{token: fmt.Sprintf("%s/%d", s.Address, len(s.letters))}
		s.letters = append(s.letters, l)
		if s.post(l) != nil {
			return
		}
		s.count.Add(1)
	}
}

// post sends a letter, or sends it again. An error means that there was no answer.
func (s *warmSender) post(l *warmLetter) error {
	body := fmt.Sprintf(`{"to":%q,"payload":{"token":%q,"text":%q}}`, s.to.Address, l.token, strings.Repeat("x", 400))
	ans, err := s.request("POST", "/api/v1/messages", body, "Idempotency-Key", l.token).to(s.server.url)
	if err != nil {
		return err
	}
	l.id, l.answered = parse[record](s.t, ans.want(s.t, http.StatusCreated)).MessageID, time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if before, known := s.given[l.id]; known && before != l.token {
		s.t.Errorf("%s was given out twice, for %s and for %s", l.id, before, l.token)
	}
	s.given[l.id] = l.token
	return nil
}

// read moves the recipient's cursor until the server is gone.
func (w *warm) read() {
	for {
		path := "/api/v1/mecha/" + w.to.Address + "/messages?limit=1000&wait=1&direction=in&since_message_id=" + w.cursor
		ans, err := w.to.request("GET", path, "").to(w.server.url)
		if err != nil {
			return
		}
		page := parse[struct{ Messages []record }](w.t, ans.want(w.t, http.StatusOK))
		if n := len(page.Messages); n > 0 {
			w.cursor = page.Messages[n-1].MessageID
		}
	}
}

// compare compares the restored messages with the answers that the senders got.
func (w *warm) compare(safe, killed time.Time) {
	there, newest := map[string]bool{}, ""
	for _, m := range w.server.history(w.to, "direction=in") {
		there[m.MessageID] = true
		newest = max(newest, m.MessageID)
	}
	missing, oldest := 0, killed
	for _, s := range w.senders {
		for _, l := range s.letters {
			l.lost = l.id != "" && !there[l.id]
			if !l.lost {
				continue
			}
			missing++
			if l.answered.Before(oldest) {
				oldest = l.answered
			}
			if l.id < newest {
				w.t.Fatalf("%s is missing, though newer messages are there", l.id)
			}
			if l.answered.Before(safe) {
				w.t.Fatalf("%s is missing, though it was answered at %v and the copy has all up to %v", l.id, l.answered, safe)
			}
		}
	}
	span := killed.Sub(oldest)
	w.t.Logf("%d of %d messages are missing, the oldest of them answered %v before the kill", missing, len(there)+missing, span.Round(time.Millisecond))
	if scratch.Long(w.t) && full() && span > w.copier.most() { // else the machine may be too busy for that
		w.t.Errorf("messages of the last %v are missing, want %v at most", span, w.copier.most())
	}
}

// goOn has the senders send again what is missing, and what had no answer, and then one
// more message. All of that is found behind the recipient's cursor.
func (w *warm) goOn() {
	w.each(func(s *warmSender) {
		for _, l := range s.letters {
			was := l.id
			if was != "" && !l.lost {
				continue
			}
			if err := s.post(l); err != nil {
				s.t.Error(err)
			}
			if l.id == was {
				s.t.Errorf("%s was lost, and is given out again", was)
			}
		}
		l := &warmLetter{token: fmt.Sprintf("%s/%d", s.Address, len(s.letters)), lost: true}
		s.letters = append(s.letters, l)
		if err := s.post(l); err != nil {
			s.t.Error(err)
		}
	})
	behind := map[string]bool{}
	for cursor, more := w.cursor, true; more; {
		page := parse[struct {
			Messages   []record
			HasMore    bool   `json:"has_more"`
			NextCursor string `json:"next_cursor"`
		}](w.t, w.server.ask(w.to, "GET", "/api/v1/mecha/"+w.to.Address+"/messages?limit=1000&direction=in&since_message_id="+cursor, "").want(w.t, http.StatusOK))
		for _, m := range page.Messages {
			behind[m.MessageID] = true
		}
		cursor, more = page.NextCursor, page.HasMore
	}
	for _, s := range w.senders {
		for _, l := range s.letters {
			if l.lost && !behind[l.id] {
				w.t.Fatalf("%s was sent after the restore, and is not found behind the cursor %s of before", l.id, w.cursor)
			}
		}
	}
}

// compareAll has all senders send all letters again: then each is there once.
func (w *warm) compareAll() {
	w.each(func(s *warmSender) {
		for _, l := range s.letters {
			if err := s.post(l); err != nil {
				s.t.Error(err)
				return
			}
		}
	})
	tokens := map[string]int{}
	for _, m := range w.server.history(w.to, "direction=in&include=payload") {
		tokens[parse[struct{ Token string }](w.t, m.Payload).Token]++
	}
	for _, s := range w.senders {
		for _, l := range s.letters {
			if tokens[l.token] != 1 {
				w.t.Fatalf("%s is there %d times", l.token, tokens[l.token])
			}
		}
	}
	w.server.kill()
	wantWhole(w.t, w.db)
}

// litestreamCopier is Litestream with the configuration of contrib.
type litestreamCopier struct {
	t       *testing.T
	program string
	folder  string
	lives   int
	db      string // of the relay that lives
	config  string
	process *server
}

// litestream returns the program's path, or skips: RELAY_TEST_LITESTREAM names it.
func litestream(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("RELAY_TEST_LITESTREAM"); path != "" {
		return path
	}
	return tool(t, "litestream")
}

// target is the folder of the copy. A relay that continues from a copy gets a new one.
func (c *litestreamCopier) target() string {
	return filepath.Join(c.folder, fmt.Sprintf("relay-%d", c.lives))
}

func (c *litestreamCopier) start(db string) {
	c.t.Helper()
	c.lives++
	c.db = db
	text, err := os.ReadFile("../contrib/litestream/folder.yml")
	if err != nil {
		c.t.Fatal(err)
	}
	recipe := string(text)
	for was, is := range map[string]string{"/var/lib/relay/relay.db": db, "/mnt/standby/relay-1": c.target()} {
		if strings.Count(recipe, was) != 1 {
			c.t.Fatalf("the recipe has not one %s:\n%s", was, recipe)
		}
		recipe = strings.Replace(recipe, was, is, 1)
	}
	c.config = write(c.t, recipe)
	c.process = launch(c.t, exec.Command(c.program, "replicate", "-config", c.config), nil)
}

// made waits for a change that Litestream writes to its target after the time.
func (c *litestreamCopier) made(after time.Time) {
	eventually(c.t, patience, "a copy by Litestream", func() bool {
		all, err := filepath.Glob(filepath.Join(c.target(), "ltx", "0", "*.ltx"))
		return err == nil && slices.ContainsFunc(all, func(path string) bool {
			info, err := os.Stat(path)
			return err == nil && info.ModTime().After(after)
		})
	})
}

// most is what the page says, and as much again for a busy machine.
func (c *litestreamCopier) most() time.Duration { return 2 * time.Second }

func (c *litestreamCopier) kill() { c.process.kill() }

// restore does what the page says. Litestream makes no promise of a time, so restore
// returns none.
func (c *litestreamCopier) restore(db string) time.Time {
	c.t.Helper()
	copied := filepath.Join(c.t.TempDir(), "copy.db")
	finish(c.t, exec.Command(c.program, "restore", "-config", c.config, "-o", copied, c.db), nil, "").wantCode(c.t, 0)
	wantWhole(c.t, copied)
	mustRelay(c.t, "restore", copied, "--db", db)
	return time.Time{}
}

// The page backups shows one file of contrib as it is, and names the others.
func TestTheRecipeOfThePageIsThatOfContrib(t *testing.T) {
	page := mustRelay(t, "docs", "backups")
	files, err := filepath.Glob("../contrib/litestream/*")
	if err != nil || len(files) != 4 {
		t.Fatal(files, err)
	}
	shown := 0
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(page, "\n"+strings.ReplaceAll(string(text), "\r\n", "\n")+"```\n") {
			shown++
		} else if !strings.Contains(page, "`"+filepath.Base(f)+"`") {
			t.Errorf("the page neither shows nor names %s", f)
		}
	}
	if shown != 1 {
		t.Errorf("the page shows %d files", shown)
	}
}
