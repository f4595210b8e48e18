package cmd_test

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"relay/db/scratch"
)

// Several workers, each a process of its own, share the messages of one address, with short
// leases. They and the relay are killed at random. Every message must be completed, by the
// worker whose lease it was; no two leases of a message may overlap; and a message may
// be handled again only if the worker that had it died or gave it up. RELAY_TEST_CLAIMS makes
// it 20,000 messages and 30 kills.
func TestClaimsAreKeptWhileWorkersAndRelayAreKilled(t *testing.T) {
	notShort(t)
	notOnWindows(t, "there is no kill -9")
	tool(t, "sh", "sleep")
	t.Parallel()
	messages, kills := rounds(t, 50, 5250), rounds(t, 2, 10)
	if os.Getenv("RELAY_TEST_CLAIMS") != "" {
		messages, kills = 20_000, 30
	}
	c := newClaims(t, messages)
	for range rounds(t, 3, 8) {
		c.start()
	}
	var sending sync.WaitGroup
	for i := range 4 {
		sending.Go(func() { c.send(i, 4) })
	}
	for i := range kills {
		eventually(t, 20*time.Minute, "some are handled", func() bool { return c.ended() >= c.n*(i+1)/(kills+1) })
		switch n := c.random.IntN(len(c.workers) + 4); {
		case i == 0 || n < len(c.workers): // the short form has one of each, too
			c.restart(c.workers[n%len(c.workers)])
		case i == 1 || n < len(c.workers)+3:
			c.restartRelay(0)
		default: // for longer than a lease
			c.restartRelay(time.Duration(leaseSeconds(t)+2) * time.Second)
		}
	}
	sending.Wait()
	eventually(t, 20*time.Minute, "every message is acknowledged", func() bool {
		return parse[struct{ Pending int }](t, c.relay.ask(c.bob, "GET", "/api/v1/mecha/"+c.bob.Address+"/inbox", "").want(t, 200)).Pending == 0
	})
	for _, w := range c.workers {
		w.run.interrupt()
		c.said += w.run.stderr.String()
	}
	c.compare()
}

// claims is the scene: the relay, its workers, and the log to which their commands append.
// The order of its lines is the order of events.
type claims struct {
	t          *testing.T
	n          int // messages
	random     *rand.Rand
	db, log    string
	alice, bob agent
	relay      *server
	front      *front
	workers    []*claimant
	dead       map[string]bool // the workers that were killed, by name
	said       string          // on stderr, by all workers that have ended
	relays     int             // kills of the relay
	read       int64           // bytes of the log in which the ends are counted
	ends       int
}

// claimant is one worker after the other in one place.
type claimant struct {
	place, lives int
	run          *server
}

// leaseSeconds is longer than a busy machine stands still. After a lease, the ack of the worker that
// had it still counts if it was on its way, which compare does not expect.
func leaseSeconds(t testing.TB) int {
	if scratch.Long(t) {
		return 15
	}
	return 8
}

func (w *claimant) name() string { return fmt.Sprintf("w%d.%d", w.place, w.lives) }

func newClaims(t *testing.T, n int) *claims {
	seed := rand.Uint64()
	t.Logf("the seed is %d", seed)
	db := tempDB(t)
	keys := issue(t, db, "alice^claims", "bob^claims")
	c := &claims{t: t, n: n, random: rand.New(rand.NewPCG(seed, 0)), db: db, log: filepath.Join(t.TempDir(), "log"), alice: keys[0], bob: keys[1], dead: map[string]bool{}}
	c.relay = startProcess(t, db, "--rate-limit", "0")
	c.front = newFront(t, c.relay)
	return c
}

// start adds a worker.
func (c *claims) start() {
	w := &claimant{place: len(c.workers)}
	c.workers = append(c.workers, w)
	c.launch(w)
}

// launch starts the worker of a place. Its commands take no time, or a tenth of a second, or
// longer than a lease.
func (c *claims) launch(w *claimant) {
	w.lives++
	command := `read -r p; echo "begin $W $RELAY_MESSAGE_ID" >> '` + c.log + `'; case $p in *slow*) sleep ` + fmt.Sprint(leaseSeconds(c.t)+2) + `;; *short*) sleep 0.1;; esac; echo "end $W $RELAY_MESSAGE_ID" >> '` + c.log + `'`
	w.run = launch(c.t, exec.Command(binary, "listen", "--claim", "--jobs", "4", "--lease", fmt.Sprint(leaseSeconds(c.t), "s"), "--worker", w.name(), "--exec", command),
		[]string{"RELAY_URL=" + c.front.url, "RELAY_KEY=" + c.bob.Key, "W=" + w.name()})
}

func (c *claims) restart(w *claimant) {
	w.run.kill()
	c.dead[w.name()] = true
	c.said += w.run.stderr.String()
	c.launch(w)
}

func (c *claims) restartRelay(away time.Duration) {
	c.relays++
	c.relay.kill()
	back := time.Now().Add(away)
	eventually(c.t, patience, "the relay stays away", func() bool { return !time.Now().Before(back) })
	c.relay = startProcess(c.t, c.db, "--rate-limit", "0")
	c.front.leadTo(c.relay)
}

// send sends one part of the messages.
func (c *claims) send(part, of int) {
	for i := part; i < c.n; {
		kind := "fast"
		switch {
		case i%(c.n/10) == 7:
			kind = "slow"
		case i%3 == 0:
			kind = "short"
		}
		body := fmt.Sprintf(`{"to":"bob^claims","payload":{"n":%d,"kind":%q}}`, i, kind)
		ans, err := c.alice.request("POST", "/api/v1/messages", body, "Idempotency-Key", fmt.Sprint(i)).to(c.front.url)
		switch {
		case err == nil && ans.status == http.StatusCreated:
			i += of
		case err == nil && ans.status != http.StatusServiceUnavailable:
			c.t.Errorf("status %d: %s", ans.status, ans.body)
			return
		default:
			time.Sleep(10 * time.Millisecond) // the relay is away
		}
	}
}

func (c *claims) lines() []string {
	text, err := os.ReadFile(c.log)
	if err != nil && !os.IsNotExist(err) {
		c.t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

// ended counts the commands that came to their end, and reads only what is new in the log.
func (c *claims) ended() int {
	f, err := os.Open(c.log)
	if err != nil {
		return 0 // no command has begun
	}
	defer f.Close()
	text, err := io.ReadAll(io.NewSectionReader(f, c.read, 1<<40))
	if err != nil {
		c.t.Fatal(err)
	}
	whole := text[:bytes.LastIndexByte(text, '\n')+1]
	c.read += int64(len(whole))
	c.ends += bytes.Count(whole, []byte("end "))
	return c.ends
}

// compare holds the relay's own record of each message against the workers' log.
func (c *claims) compare() {
	type life struct{ begun, ended []string } // names of workers, in order
	lives := map[string]*life{}
	spread := map[string]int{}
	for _, line := range c.lines() {
		word := strings.Fields(line)
		if lives[word[2]] == nil {
			lives[word[2]] = &life{}
		}
		if l := lives[word[2]]; word[0] == "begin" {
			l.begun = append(l.begun, word[1])
		} else {
			l.ended = append(l.ended, word[1])
			spread[word[1][:2]]++
		}
	}
	messages := c.relay.history(c.bob, "direction=in")
	if len(messages) != c.n {
		c.t.Errorf("there are %d messages, want %d", len(messages), c.n)
	}
	again, finishedAgain, unanswered := 0, 0, 0
	for _, m := range messages {
		tr, l := c.relay.trace(c.bob, m.MessageID), lives[m.MessageID]
		holder, claimed := "", 0
		for _, s := range tr.Steps {
			switch s.What {
			case "claimed":
				if holder != "" {
					c.t.Errorf("%s: %s claimed what %s held: %s", m.MessageID, s.Worker, holder, tr.steps())
				}
				holder = s.Worker
				claimed++
			case "returned":
				holder = ""
			case "acknowledged":
				if holder == "" || s.Status != "completed" || l == nil || !slices.Contains(l.ended, holder) {
					c.t.Errorf("%s: %s while it belonged to %q; the log has %+v: %s", m.MessageID, s.Status, holder, l, tr.steps())
				}
			}
		}
		if !strings.HasSuffix(tr.steps(), "acknowledged completed") || l == nil {
			c.t.Errorf("%s is not completed: %s", m.MessageID, tr.steps())
			continue
		}
		unanswered += claimed - len(l.begun)
		if len(l.begun) > 1 {
			again++
		}
		if len(l.ended) > 1 {
			finishedAgain++
		}
		for _, w := range l.begun[:len(l.begun)-1] {
			if !c.dead[w] && !strings.Contains(c.said, m.MessageID+" is given up") && !strings.Contains(c.said, m.MessageID+" is not acknowledged") {
				c.t.Errorf("%s was handled again, though %s lived and had the lease: %+v, %s", m.MessageID, w, l, tr.steps())
			}
		}
	}
	names := slices.Sorted(maps.Keys(spread))
	for _, name := range names {
		c.t.Logf("%s: %d commands", name, spread[name])
	}
	if len(names) != len(c.workers) {
		c.t.Errorf("only %v had work", names)
	}
	c.t.Logf("%d messages, %d workers; killed: the relay %d times, workers %d times; %d messages begun more than once, %d of them finished more than once; %d claims whose answer reached nobody; given up %d times",
		c.n, len(c.workers), c.relays, len(c.dead), again, finishedAgain, unanswered, strings.Count(c.said, " is given up"))
}
