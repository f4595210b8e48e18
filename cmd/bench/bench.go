// Package bench measures a relay from outside, as its clients meet it: over
// HTTP and WebSockets, with signed requests of many Mechas.
//
// Every load is a closed loop: a number of connections, each with one request
// under way. A figure is the median of several rounds. Rounds that are to be
// compared alternate, because a machine drifts by more than the differences that
// are measured. Each round notes what share of the CPU other programs took.
//
// The generator runs on the same cores as the relay. So it writes its requests by hand (conn.go),
// and its share of the CPU is reported.
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

	"relay/cmd/bench/proc"
	"relay/db/relay"
)

// Config says what to measure.
type Config struct {
	Program string // the relay's executable; it is started as a process of its own
	Server  string // the executable of the relay whose fairness is measured; "": Program
	Schema  string // for a new database
	Dir     string // a folder for the databases is made in here, and removed at the end
	URL     string // measure the relay that runs at this URL, with the file DB; "": start one
	DB      string // without URL: the file to make, or to use again, and to keep; "": one in Dir

	Duration    time.Duration // of a round
	Repeats     int           // rounds
	Connections []int         // for the stages that send
	Payload     int           // bytes of a message
	Mechas      int           // senders and recipients
	Sockets     int           // the most, for the stages fanout and idle
	Messages    int           // in the mailbox that the stages history and sync read
	Profiles    int           // to search in
	Stored      int           // messages in the file before anything is measured
	StoredOver  time.Duration // the time over which these were sent, up to now
	Only        []string      // names of stages; none: all but fairness
	Attacks     []string      // of the stage fairness; none: all

	Relay string      // the relay's version, for the report
	By    relay.Actor // who measures, for the audit log of the relay at URL
	// Progress is called with what happens, and how many operations a second (0: not known).
	Progress func(what string, perSecond float64)
}

type stage struct {
	name string
	run  func(*bench, context.Context) error
}

// Fairness is the stage that runs only if Config.Only names it, because it takes as
// long as all others together.
const Fairness = "fairness"

var stages = []stage{
	{"send", (*bench).send}, {"socket", (*bench).socket}, {"push", (*bench).push}, {"ack", (*bench).ack},
	{"fanout", (*bench).fanout},
	{"idle", (*bench).idle}, {"history", (*bench).history}, {"sync", (*bench).sync}, {"search", (*bench).search},
	{"scale", (*bench).scale}, {"start", (*bench).start},
	{Fairness, (*bench).fairness},
}

// Stages returns the names of all stages, in their order.
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
	main    *server // the one with a store; nil until it is needed
}

// Run measures, and returns the figures. If a stage fails, or ctx ends, it
// returns the error and the figures of the stages before.
//
// However Run ends, its servers have ended and its folder is removed. Only a file that
// Config.DB names stays. With Config.URL, the Mechas that it made are removed, and
// their messages stay.
func Run(ctx context.Context, c Config) (_ *Report, err error) {
	b := &bench{Config: c}
	b.report = Report{Format: reportFormat, Relay: c.Relay, Go: runtime.Version(),
		System: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.NumCPU(), Began: time.Now().UTC().Truncate(time.Second),
		URL: c.URL, Duration: c.Duration.Seconds(), Repeats: c.Repeats, Payload: c.Payload, Mechas: c.Mechas,
		Stored: c.Stored, Rows: []Row{}}
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
		if !slices.Contains(c.Only, s.name) && (len(c.Only) > 0 || s.name == Fairness) {
			continue
		}
		if err := s.run(b, ctx); err != nil {
			return &b.report, b.explain(ctx, fmt.Errorf("%s: %w", s.name, err))
		}
	}
	return &b.report, nil
}

// checkFiles refuses to begin if there may not be enough open files. Each
// connection needs one here, and one in the server.
func (b *bench) checkFiles() error {
	const others = 100
	need := max(slices.Max(b.Connections), 2*64+64) + others
	if len(b.Only) == 0 || slices.Contains(b.Only, "idle") || slices.Contains(b.Only, "fanout") {
		need = max(need, b.Sockets+others)
	}
	for _, a := range attacks {
		if slices.Contains(b.Only, Fairness) && (len(b.Attacks) == 0 || slices.Contains(b.Attacks, a.name)) {
			need = max(need, a.clients+others)
		}
	}
	if limit := proc.OpenFiles(); limit > 0 && limit < need {
		return fmt.Errorf("relay bench needs %d open files, and %d are allowed: raise the limit (ulimit -n %d), "+
			"or ask for fewer --sockets and --connections", need, limit, need)
	}
	return nil
}

// explain adds to a stage's error why connections broke: the run was
// interrupted, or a server has ended.
func (b *bench) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	for _, s := range b.servers {
		if s.process == nil {
			continue
		}
		if last, ended := s.process.Ended(); ended {
			err = fmt.Errorf("%w; a server has ended: %s", err, last)
		}
	}
	return err
}

// clear ends the servers and removes the files.
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

// durable returns the server with a store, which most stages share.
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
func (b *bench) rounds(f func() (*sample, error)) ([]*sample, error) {
	all, err := alternate(b, 1, func(int, string) (*sample, error) { return f() })
	return all[0], err
}

// alternate measures n things in turn, several times. It calls f with the number of the
// thing and the name of the round, and returns the rounds of each thing.
func alternate[T any](b *bench, n int, f func(i int, round string) (T, error)) ([][]T, error) {
	all := make([][]T, n)
	for round := range b.Repeats {
		for i := range all {
			one, err := f(i, fmt.Sprintf("round %d/%d", round+1, b.Repeats))
			if err != nil {
				return all, err
			}
			all[i] = append(all[i], one)
		}
	}
	return all, nil
}
