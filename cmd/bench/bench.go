// Package bench measures a relay from outside, as its clients meet it: over
// HTTP and WebSockets, with signed requests of many Mechas.
//
// Every load is a closed loop: so many connections, each with one request
// under way. A figure is the median of several rounds. Rounds of what is to be
// compared alternate, for a machine drifts by more than what one looks for; and
// each round notes what share of the CPU others took.
//
// The generator runs beside the relay, on the same cores, so its own requests
// are written by hand (conn.go, socket.go) and its share is reported.
package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"
)

// Config says what to measure.
type Config struct {
	Program string // the relay to start, as a process of its own
	Schema  string
	Dir     string // its database is made in a folder in here
	URL     string // of a relay that runs, whose file is DB; "": one of our own
	DB      string // without URL: a file to make, or to use again, and to keep; "": one in Dir, removed at the end

	Duration    time.Duration // of a round
	Repeats     int
	Connections []int
	Payload     int // bytes
	Mechas      int
	Sockets     int
	Messages    int           // in a mailbox that is read
	Profiles    int           // that are searched
	Stored      int           // messages in the file before anything is measured
	StoredOver  time.Duration // the time over which they came
	Only        []string      // stages; none: all

	Relay string // its version
	// Progress is told what goes on, and how many operations a second (0: not known).
	Progress func(what string, perSecond float64)
}

type stage struct {
	name string
	run  func(*bench, context.Context) error
}

var stages = []stage{
	{"send", (*bench).send}, {"push", (*bench).push}, {"ack", (*bench).ack}, {"fanout", (*bench).fanout},
	{"idle", (*bench).idle}, {"history", (*bench).history}, {"sync", (*bench).sync}, {"search", (*bench).search},
	{"scale", (*bench).scale}, {"start", (*bench).start},
}

// Stages are the names of all stages, in their order.
func Stages() (names []string) {
	for _, s := range stages {
		names = append(names, s.name)
	}
	return names
}

// bench is a run under way.
type bench struct {
	Config
	report  Report
	dir     string
	servers []*server
	main    *server // the durable one; nil until needed
}

// Run measures. It leaves nothing behind, whether it succeeds, fails, or ctx
// ends: its servers have ended and its folder has gone; a file that Config.DB
// names stays. With Config.URL the Mechas that it made have been removed; their
// messages stay. The report is that of the stages before the one that failed.
func Run(ctx context.Context, c Config) (_ *Report, err error) {
	b := &bench{Config: c}
	b.report = Report{Relay: c.Relay, Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.NumCPU(),
		Began: time.Now().UTC().Truncate(time.Second), URL: c.URL, Duration: c.Duration.Seconds(), Repeats: c.Repeats,
		Payload: c.Payload, Mechas: c.Mechas, Stored: c.Stored, Rows: []Row{}}
	if err := b.checkFiles(); err != nil {
		return nil, err
	}
	if c.URL == "" {
		if b.dir, err = os.MkdirTemp(c.Dir, "relay-bench-"); err != nil {
			return nil, fmt.Errorf("no room for the database that is measured (--dir): %w", err)
		}
	}
	defer func() { err = errors.Join(err, b.clear()) }()
	for _, s := range stages {
		if len(c.Only) > 0 && !slices.Contains(c.Only, s.name) {
			continue
		}
		if err := s.run(b, ctx); err != nil {
			return &b.report, b.explain(ctx, fmt.Errorf("%s: %w", s.name, err))
		}
	}
	return &b.report, nil
}

// checkFiles tells ahead that connections would not find room: each takes a
// file here, and one in the server.
func (b *bench) checkFiles() error {
	const others = 100
	need := max(slices.Max(b.Connections), 2*64+64) + others
	if len(b.Only) == 0 || slices.Contains(b.Only, "idle") || slices.Contains(b.Only, "fanout") {
		need = max(need, b.Sockets+others)
	}
	if limit := openFiles(); limit > 0 && limit < need {
		return fmt.Errorf("it takes %d open files, and %d are allowed: raise the limit (ulimit -n %d), or ask for fewer --sockets and --connections", need, limit, need)
	}
	return nil
}

// explain says why a stage failed: connections break when the run is
// interrupted, or when a server has ended.
func (b *bench) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	for _, s := range b.servers {
		if s.log != nil && s.log.hasEnded() {
			err = fmt.Errorf("%w; a server has ended: %s", err, s.log.last())
		}
	}
	return err
}

// clear ends what was started and removes what was made.
func (b *bench) clear() error {
	var errs []error
	for _, s := range b.servers {
		errs = append(errs, b.end(s))
	}
	if b.dir != "" {
		errs = append(errs, os.RemoveAll(b.dir))
	}
	return errors.Join(errs...)
}

// durable gives the server that keeps what it accepts, which most stages share.
func (b *bench) durable(ctx context.Context) (_ *server, err error) {
	if b.main == nil && b.URL != "" {
		b.main, err = b.useServer(ctx)
	} else if b.main == nil {
		file := filepath.Join(b.dir, "durable.db")
		if b.DB != "" {
			file = b.DB
		}
		if b.Stored > 0 || b.DB != "" {
			if err := b.store(ctx, file, b.Stored); err != nil {
				return nil, err
			}
		}
		b.main, err = b.startServer(ctx, file, nil)
	}
	return b.main, err
}

func (b *bench) add(rows ...Row) { b.report.Rows = append(b.report.Rows, rows...) }

// rounds measures one thing several times.
func (b *bench) rounds(f func() (*sample, error)) (all []*sample, err error) {
	for range b.Repeats {
		s, err := f()
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}
