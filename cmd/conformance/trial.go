package conformance

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"relay/cmd/child"
	"relay/db"
	"relay/db/relay"
)

// crew is the crew of a trial's Mechas.
const crew = "conformance"

// A mecha is one of a trial.
type mecha struct {
	address relay.Address
	key     string
	id      relay.KeyID
}

// A trial is one run of one case: a relay, its Mechas, the programs.
type trial struct {
	*Case
	config *Config
	file   string
	relay  *child.Relay
	front  *proxy // before the programs that are judged; it has the faults
	quiet  *proxy // before the kit's own asker and worker

	asker, worker, stranger mecha
	accepted                *counter // of the asker's messages
	programs                []*program
	answers                 sync.Map // number → when the reference worker began to send the answer
	background              sync.WaitGroup
	why                     []string
	groups                  []group
}

// A counter counts, and lets others wait for a number.
type counter struct {
	mu   sync.Mutex
	n    int
	more chan struct{} // closed at the next add
}

func newCounter() *counter { return &counter{more: make(chan struct{})} }

func (c *counter) add() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	close(c.more)
	c.more = make(chan struct{})
}

// reach waits until there are n.
func (c *counter) reach(ctx context.Context, n int) error {
	for {
		c.mu.Lock()
		reached, more := c.n >= n, c.more
		c.mu.Unlock()
		if reached {
			return nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// checkCase runs one case. The error is the kit's.
func checkCase(ctx context.Context, config *Config, c *Case, dir string) (Result, error) {
	began := time.Now()
	r := Result{Name: c.Name, Must: c.Must}
	if config.Limit > 0 && config.Limit < c.questions {
		few := *c
		few.questions = config.Limit
		c = &few
	}
	t := &trial{Case: c, config: config, file: filepath.Join(dir, "relay.db"), accepted: newCounter()}
	err := os.Mkdir(dir, 0o700)
	if err == nil {
		err = t.start(ctx)
	}
	limited, cancel := context.WithTimeout(ctx, config.Timeout)
	if err == nil {
		err = c.run(limited, t)
		cancel() // ends the reference programs
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			t.failf("the case was not done within %v", config.Timeout)
			err = nil
		}
		if err == nil {
			err = t.check(ctx)
		}
	}
	cancel()
	t.end()
	if ctx.Err() != nil {
		return r, nil // Judge tells it
	}
	r.Why, r.Seconds = atMost(t.why), time.Since(began).Seconds()
	r.Passed = err == nil && len(t.why) == 0
	if t.front != nil {
		r.Faults = int(t.front.struck.Load())
	}
	if r.Passed && t.faults != nil && r.Faults == 0 {
		r.Passed, r.Skipped = false, "nothing went wrong for the program: it does not use what this case spoils"
	}
	if err != nil {
		err = fmt.Errorf("case %s: %w", c.Name, err)
	}
	return r, err
}

// atMost cuts a list of reasons: the first tell enough.
func atMost(why []string) []string {
	const limit = 5
	if len(why) > limit {
		why = append(why[:limit:limit], fmt.Sprintf("and %d more", len(why)-limit))
	}
	return why
}

func (t *trial) failf(format string, args ...any) {
	t.why = append(t.why, fmt.Sprintf(format, args...))
}

// start starts the relay and the proxies, and makes the Mechas.
func (t *trial) start(ctx context.Context) (err error) {
	if t.front, err = newProxy(t.faultsOf()); err != nil {
		return err
	}
	if t.quiet, err = newProxy(faults{}); err != nil {
		return err
	}
	if err := t.startRelay(ctx); err != nil {
		return err
	}
	err = t.withDB(func(d *db.DB) error {
		for _, m := range []struct {
			name string
			to   *mecha
		}{{Asker, &t.asker}, {Worker, &t.worker}, {"stranger", &t.stranger}} {
			k, err := d.Issue(&relay.IssueKey{At: time.Now(), Address: relay.Address(m.name + "^" + crew),
				Label: "relay conformance"})
			if err != nil {
				return err
			}
			*m.to = mecha{address: relay.Address(m.name + "^" + crew), key: k.Text, id: k.ID}
		}
		return nil
	})
	for _, p := range []*proxy{t.front, t.quiet} {
		p.mu.Lock() // nobody asks it yet
		p.accepted, p.asker = t.accepted, t.asker.key
		p.mu.Unlock()
	}
	return err
}

func (t *trial) faultsOf() faults {
	if t.faults == nil {
		return faults{}
	}
	return t.faults(t)
}

func (t *trial) startRelay(ctx context.Context) (err error) {
	args := slices.Concat([]string{"serve", "--addr=127.0.0.1:0", "--db=" + t.file, "--log-format=json"}, t.flags)
	if t.relay, err = child.Start(ctx, t.config.Relay, args, child.Environ()); err != nil {
		return err
	}
	u, err := url.Parse(t.relay.URL)
	if err == nil {
		t.front.lead(u.Host)
		t.quiet.lead(u.Host)
	}
	return err
}

const downTime = 700 * time.Millisecond // of a relay that was killed

// crash kills the relay, and starts it again after a while.
func (t *trial) crash(ctx context.Context) error {
	t.front.struck.Add(1)
	t.relay.Kill()
	t.front.lead("")
	t.quiet.lead("")
	timer := time.NewTimer(downTime)
	defer timer.Stop()
	select {
	case <-timer.C:
		return t.startRelay(ctx)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// withDB opens the file while the server runs.
func (t *trial) withDB(f func(*db.DB) error) error {
	d, err := db.Open(db.Options{Path: t.file, Schema: t.config.Schema, By: t.config.By})
	if err != nil {
		return err
	}
	return errors.Join(f(d), d.Close())
}

func (t *trial) revoke(m mecha) error {
	return t.withDB(func(d *db.DB) error { return d.Revoke(&relay.RevokeKey{At: time.Now(), ID: m.id}) })
}

// plays reports whether the program has this role in the trial; else the kit's own has it.
func (t *trial) plays(role string) bool {
	return (t.Role == "" || t.Role == role) && (t.config.Role == "" || t.config.Role == role)
}

// startWorker starts the worker. The program is nil if it is the kit's own.
func (t *trial) startWorker(ctx context.Context) (*program, error) {
	if t.plays(Worker) {
		return t.startProgram(Worker, t.worker)
	}
	t.background.Go(func() { t.work(ctx) })
	return nil, nil
}

// startAsker is startWorker for the asker. The end of the kit's own is told by done.
func (t *trial) startAsker(ctx context.Context, to relay.Address) (p *program, done chan error, err error) {
	if t.plays(Asker) {
		p, err = t.startProgram(Asker, t.asker, strconv.Itoa(t.questions), "RELAY_TO="+string(to))
		return p, nil, err
	}
	done = make(chan error, 1)
	t.background.Go(func() { done <- t.ask(ctx) })
	return nil, done, nil
}

// startProgram starts the program that is judged. more are its further arguments, and
// after them variables, as in NAME=value.
func (t *trial) startProgram(role string, m mecha, more ...string) (*program, error) {
	env := append(child.Environ(), "RELAY_URL="+t.front.url, "RELAY_KEY="+m.key)
	var args []string
	for _, s := range more {
		if strings.Contains(s, "=") {
			env = append(env, s)
		} else {
			args = append(args, s)
		}
	}
	p, err := startProgram(t.config.Program, role, args, env)
	if err == nil {
		t.programs = append(t.programs, p)
	}
	return p, err
}

// end ends all that the trial has started.
func (t *trial) end() {
	for _, p := range t.programs {
		p.kill()
	}
	for _, p := range []*proxy{t.front, t.quiet} {
		if p != nil {
			p.close()
		}
	}
	t.background.Wait()
	if t.relay != nil {
		t.relay.Stop()
	}
}
