package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"relay/cmd/child"
	"relay/db"
	"relay/db/relay"
)

// A server is a relay that is measured: a process of ours, or one that ran already.
type server struct {
	url     string
	pid     int // 0: it ran already
	file    string
	env     []string
	program string
	args    []string
	process *child.Relay // nil: it ran already, or has ended
	mechas  []*mecha
	stop    func()
	kill    func() // SIGKILL, as in a crash
	borrow  bool   // it ran already: its database must lose our Mechas at the end
	lean    bool   // it is not a relay: it only answers sends
}

// end ends a server of ours, and removes our Mechas from the database of another.
func (b *bench) end(s *server) (err error) {
	if s.borrow {
		err = b.withDB(s, func(d *db.DB) error { return removeMechas(d, s.mechas) })
		s.borrow = false
	}
	s.stop()
	return err
}

// withDB opens the file of a server that may be running, and closes it again. In the
// file of another's server, the audit log notes what we do.
func (b *bench) withDB(s *server, f func(*db.DB) error) error {
	o := db.Options{Path: s.file, Schema: b.Schema}
	if s.borrow {
		o.By = b.By
	}
	d, err := db.Open(o)
	if err != nil {
		return err
	}
	return errors.Join(f(d), d.Close())
}

// unlimited are the settings with which only the machine limits a relay.
var unlimited = []string{"--rate-limit=0", "--max-pending=0", "--max-sockets=0", "--max-sockets-per-mecha=0",
	"--socket-rate-limit=0", "--max-nonces=0", "--max-connections=0", "--max-body-memory=0", "--require-message-signature",
	"--log-format=json"}

// startServer starts a relay on a file, as a process of its own, and makes the
// Mechas and their keys. Run ends the process.
func (b *bench) startServer(ctx context.Context, file string, env []string, args ...string) (*server, error) {
	s := &server{file: file, env: append(env, child.Environ()...), program: b.Program, stop: func() {}}
	s.args = slices.Concat([]string{"serve", "--addr=127.0.0.1:0", "--db=" + file}, unlimited, args)
	b.servers = append(b.servers, s)
	if err := b.launch(ctx, s); err != nil {
		return nil, err
	}
	return s, b.issue(ctx, s, ownCrew)
}

// launch starts the process of a server, and returns when the relay is ready.
func (b *bench) launch(ctx context.Context, s *server) (err error) {
	if s.process, err = child.Start(ctx, s.program, s.args, s.env); err != nil {
		return err
	}
	s.url, s.pid = s.process.URL, s.process.PID
	end := func(how func(*child.Relay)) func() {
		p := s.process
		return func() {
			s.process = nil // from now on its end explains nothing
			how(p)
		}
	}
	s.stop, s.kill = end((*child.Relay).Stop), end((*child.Relay).Kill)
	return ready(ctx, s.url)
}

// ready returns nil if a relay says that it answers requests.
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

// useServer measures a relay that runs already. It makes Mechas in that relay's
// database, in a crew of their own. Run removes them.
func (b *bench) useServer(ctx context.Context) (*server, error) {
	s := &server{url: strings.TrimSuffix(b.URL, "/"), file: b.DB, stop: func() {}, borrow: true}
	b.servers = append(b.servers, s)
	return s, b.issue(ctx, s, "bench-"+strings.ToLower(time.Now().UTC().Format("20060102T150405")))
}

const keyLife = 24 * time.Hour // in case we are killed before the Mechas are removed

// issue makes the Mechas and their keys.
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
	// After an error, too: the Mechas that were made must be removed.
	s.mechas = slices.DeleteFunc(all, func(m *mecha) bool { return m == nil })
	return err
}

func removeMechas(d *db.DB, mechas []*mecha) error {
	return inParallel(context.Background(), len(mechas), func(i int) error {
		return d.RemoveMecha(&relay.RemoveMecha{At: time.Now(), Address: relay.Address(mechas[i].address)})
	})
}

// parallelWrites is how many goroutines write at once, and so share commits.
const parallelWrites = 256

// inParallel calls f for 0 to n-1, roughly in this order, many at a time, until a
// call fails.
func inParallel(ctx context.Context, n int, f func(i int) error) error {
	var all sync.WaitGroup
	errs := make([]error, parallelWrites)
	for w := range parallelWrites {
		all.Go(func() {
			for i := w; i < n && errs[w] == nil; i += parallelWrites {
				if errs[w] = ctx.Err(); errs[w] == nil {
					errs[w] = f(i)
				}
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
