package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"relay/db"
)

// A server is a relay under test: a process of ours, or one that was running.
type server struct {
	url    string
	pid    int // 0: not ours
	file   string
	log    *logTail // nil: not ours, or no longer running
	mechas []*mecha
	stop   func()
	remove bool // the Mechas, at the end: the database is not ours
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

// startServer runs a relay as a process of its own on a new file in dir, with
// keys for as many Mechas as are wanted. Run ends it.
func (b *bench) startServer(ctx context.Context, name string, env []string, args ...string) (*server, error) {
	path := filepath.Join(b.dir, name+".db")
	c := exec.Command(b.Program, append(append([]string{"serve", "--addr=127.0.0.1:0", "--db=" + path}, unlimited...), args...)...)
	c.Env = env
	for _, e := range os.Environ() { // settings of whoever measures do not count
		if !strings.HasPrefix(e, "RELAY_") && !strings.HasPrefix(e, "REQUIRE_MESSAGE_SIGNATURE=") {
			c.Env = append(c.Env, e)
		}
	}
	stderr, err := c.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	log := &logTail{url: make(chan string, 1), ended: make(chan struct{})}
	go log.read(stderr)
	s := &server{pid: c.Process.Pid, file: path, log: log}
	s.stop = sync.OnceFunc(func() {
		s.log = nil // that it has ended is no news then
		stopProcess(c, log)
	})
	b.servers = append(b.servers, s)
	select {
	case s.url = <-log.url:
	case <-log.ended:
		s.stop()
		return nil, fmt.Errorf("the server did not start: %s", log.last())
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return s, b.issue(ctx, s, "bench")
}

// stopProcess asks the process to end, and after a while makes it.
func stopProcess(c *exec.Cmd, log *logTail) {
	if c.Process.Signal(os.Interrupt) != nil { // Windows has no such signal
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
			address := fmt.Sprintf("m%06d^%s", i, crew)
			now := time.Now()
			k, err := d.Issue(&db.IssueKey{At: now, Address: db.Address(address), Label: "relay bench", ExpiresAt: now.Add(keyLife)})
			if err == nil {
				all[i] = &mecha{address: address, key: k.Text}
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
		return d.RemoveMecha(&db.RemoveMecha{At: time.Now(), Address: db.Address(mechas[i].address)})
	})
}

// inParallel calls f for 0 to n-1, from a few goroutines, until one fails.
func inParallel(ctx context.Context, n int, f func(i int) error) error {
	const workers = 64
	var all sync.WaitGroup
	errs := make([]error, workers)
	for w := range workers {
		all.Go(func() {
			for i := w; i < n && errs[w] == nil; i += workers {
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
