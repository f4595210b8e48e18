package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"relay/db"
	"relay/db/relay"
)

// A server is a relay under test: a process of ours, or one that was running.
type server struct {
	url    string
	pid    int // 0: not ours
	file   string
	env    []string
	args   []string
	log    *logTail // nil: not ours, or no longer running
	mechas []*mecha
	stop   func()
	kill   func() // at once, as a crash would
	remove bool   // the Mechas, at the end: the database is not ours
}

// end ends the server, if it is ours, and takes back what was put into one that is not.
func (b *bench) end(s *server) (err error) {
	if s.remove {
		s.remove = false
		err = b.withDB(s, func(d *db.DB) error { return remove(d, s.mechas) })
	}
	s.stop()
	return err
}

// withDB opens a server's file beside it, for as short as can be.
func (b *bench) withDB(s *server, f func(*db.DB) error) error {
	d, err := db.Open(db.Options{Path: s.file, Schema: b.Schema})
	if err != nil {
		return err
	}
	return errors.Join(f(d), d.Close())
}

// unlimited are the settings under which nothing but the machine is the bound.
var unlimited = []string{"--rate-limit=0", "--max-pending=0", "--max-sockets=0", "--max-sockets-per-mecha=0",
	"--socket-rate-limit=0", "--max-nonces=0", "--max-connections=0", "--max-body-memory=0", "--require-message-signature", "--log-format=json"}

const stopTimeout = 15 * time.Second // longer than a relay takes to stop

// startServer runs a relay as a process of its own on a file, with keys for as
// many Mechas as are wanted. Run ends it.
func (b *bench) startServer(ctx context.Context, file string, env []string, args ...string) (*server, error) {
	s := &server{file: file, env: env, stop: func() {}}
	s.args = append(append([]string{"serve", "--addr=127.0.0.1:0", "--db=" + file}, unlimited...), args...)
	for _, e := range os.Environ() { // settings of whoever measures do not count
		if !strings.HasPrefix(e, "RELAY_") && !strings.HasPrefix(e, "REQUIRE_MESSAGE_SIGNATURE=") {
			s.env = append(s.env, e)
		}
	}
	b.servers = append(b.servers, s)
	if err := b.launch(ctx, s); err != nil {
		return nil, err
	}
	return s, b.issue(ctx, s, ownCrew)
}

// launch runs a server that does not run, and returns as soon as it says that it is ready.
func (b *bench) launch(ctx context.Context, s *server) error {
	c := exec.Command(b.Program, s.args...)
	c.Env = s.env
	stderr, err := c.StderrPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	log := &logTail{url: make(chan string, 1), ended: make(chan struct{})}
	go log.read(stderr)
	s.pid, s.log = c.Process.Pid, log
	var once sync.Once
	ending := func(signal os.Signal) func() {
		return func() {
			once.Do(func() {
				s.log = nil // that it has ended is no news then
				endProcess(c, signal, log)
			})
		}
	}
	s.stop, s.kill = ending(os.Interrupt), ending(os.Kill)
	select {
	case s.url = <-log.url:
	case <-log.ended:
		s.stop()
		return fmt.Errorf("the server did not start: %s", log.last())
	case <-ctx.Done():
		return ctx.Err()
	}
	return ready(ctx, s.url)
}

// ready asks a relay whether it will answer requests.
func ready(ctx context.Context, base string) error {
	c, err := dial(ctx, base)
	if err != nil {
		return err
	}
	defer c.close()
	c.net.SetDeadline(time.Now().Add(patience))
	if _, err := fmt.Fprintf(c.net, "GET /readyz HTTP/1.1\r\nHost: %s\r\n\r\n", c.host); err != nil {
		return err
	}
	status, body, err := c.answer()
	if err == nil && status != http.StatusOK {
		err = refused(status, body)
	}
	return err
}

// endProcess sends the process a signal, and after a while makes it end.
func endProcess(c *exec.Cmd, signal os.Signal, log *logTail) {
	if c.Process.Signal(signal) != nil { // Windows has but one
		c.Process.Kill()
	}
	kill := time.AfterFunc(stopTimeout, func() { c.Process.Kill() })
	defer kill.Stop()
	<-log.ended // before Wait, which closes the pipe
	c.Wait()    // how it ended tells nothing that the log has not
}

// useServer drives a relay that runs already, as Mechas that it makes in its
// database, in a crew of their own, and removes again.
func (b *bench) useServer(ctx context.Context) (*server, error) {
	s := &server{url: strings.TrimSuffix(b.URL, "/"), file: b.DB, stop: func() {}, remove: true}
	b.servers = append(b.servers, s)
	return s, b.issue(ctx, s, "bench-"+strings.ToLower(time.Now().UTC().Format("20060102T150405")))
}

const keyLife = 24 * time.Hour // if we are killed before they are removed

// issue makes the Mechas and their keys, many at a time, so that they share commits.
func (b *bench) issue(ctx context.Context, s *server, crew string) error {
	all := make([]*mecha, b.Mechas)
	err := b.withDB(s, func(d *db.DB) error {
		return inParallel(ctx, len(all), func(i int) error {
			address := numbered(i, crew)
			now := time.Now()
			k, err := d.Issue(&relay.IssueKey{At: now, Address: address, Label: "relay bench", ExpiresAt: now.Add(keyLife)})
			if err == nil {
				all[i] = &mecha{address: string(address), key: k.Text}
			}
			return err
		})
	})
	// If it failed, some were made all the same, and are to be removed.
	s.mechas = slices.DeleteFunc(all, func(m *mecha) bool { return m == nil })
	return err
}

func remove(d *db.DB, mechas []*mecha) error {
	return inParallel(context.Background(), len(mechas), func(i int) error {
		return d.RemoveMecha(&relay.RemoveMecha{At: time.Now(), Address: relay.Address(mechas[i].address)})
	})
}

// together are the goroutines that write at once, and so share commits.
const together = 256

// inParallel calls f for 0 to n-1, roughly in this order, until one fails.
func inParallel(ctx context.Context, n int, f func(i int) error) error {
	var all sync.WaitGroup
	errs := make([]error, together)
	for w := range together {
		all.Go(func() {
			for i := w; i < n && errs[w] == nil; i += together {
				if errs[w] = ctx.Err(); errs[w] == nil {
					errs[w] = f(i)
				}
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// A logTail reads what a server says: first its address, then what may explain its end.
type logTail struct {
	url   chan string
	ended chan struct{}
	mu    sync.Mutex
	line  string
}

func (l *logTail) read(r io.Reader) {
	defer close(l.ended)
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		var v struct{ Msg, URL string }
		if json.Unmarshal([]byte(line), &v) == nil && v.Msg == "serving" {
			l.url <- v.URL
		}
		l.mu.Lock()
		l.line = strings.TrimSpace(line)
		l.mu.Unlock()
	}
}

func (l *logTail) hasEnded() bool {
	select {
	case <-l.ended:
		return true
	default:
		return false
	}
}

func (l *logTail) last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.line
}
