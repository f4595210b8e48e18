// Package imports is relay mecha import: it registers many Mechas from lines of JSON, or one from an
// A2A agent card. It writes by package db, which hands the writes to the server of the file if one
// runs, and does not wait for each. The audit log has the import as one act, which begins and ends.
package imports

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"relay/cmd/internal/cli"
	"relay/cmd/internal/show"
	"relay/db"
	"relay/db/relay"
	"relay/http/docs"
)

func init() {
	cli.Register(cli.Ring{
		Name: "imports",
		Commands: []cli.Command{{Under: "mecha", Make: func(a *cli.App) *cobra.Command {
			return (&app{a}).command()
		}}},
	})
	docs.Register(docs.Ring{Name: "imports"}) // the pages "search" and "command-line" tell of it
}

type app struct{ *cli.App }

func (a *app) command() *cobra.Command {
	var as string
	cmd := &cobra.Command{
		Use:   "import FILE|-",
		Short: "Register many Mechas with their profiles, or one from an agent card",
		Long: `Register Mechas with their profiles. Each line of FILE is a JSON object:
{"mecha_id": "planner^acme", "profile": {…}}. With --as, FILE is the A2A agent
card of one Mecha. FILE may be written @FILE, as relay send has it; - is stdin.

A Mecha that is registered already gets the new profile. A faulty line is
reported, and the others are imported. If the disk is full, or the store fails,
the import ends. No keys are issued: use relay key create.`,
		Example: `  relay mecha import agents.jsonl
  relay mecha import card.json --as planner^acme`,
		Args: cli.Exactly(1, "one file, or - for stdin"),
		RunE: func(_ *cobra.Command, args []string) error {
			if as != "" {
				return a.importCard(args, as)
			}
			in, size, err := a.Open(args[0])
			if err != nil {
				return err
			}
			defer in.Close()
			return a.WithDB(a.MayCreate, func(d *db.DB) error { return a.importLines(d, in, size, args[0]) })
		},
	}
	cmd.Flags().StringVar(&as, "as", "", "FILE is the A2A agent card of the Mecha with this `address`")
	a.CreateFlag(cmd)
	return cmd
}

func (a *app) importCard(args []string, as string) error {
	address, err := relay.ParseAddress(as)
	if err != nil {
		return cli.Plain(err)
	}
	body, err := a.Input(args)
	if err != nil {
		return err
	}
	p, err := readCard(body)
	if err != nil {
		return cli.Plain(err)
	}
	return a.WithDB(a.MayCreate, func(d *db.DB) error {
		if err := d.PutProfile(&relay.PutProfile{At: time.Now(), Address: address, Register: true,
			Profile: p.Stored()}); err != nil {
			return cli.Plain(err)
		}
		if a.JSON {
			return a.PrintJSON(map[string]any{"imported": 1, "failed": 0})
		}
		_, err := fmt.Fprintf(a.Stdout, "%s is imported, with %s\n", address, show.Count(len(p.Skills), "skill"))
		return err
	})
}

// importer writes profiles as fast as the store can commit them.
type importer struct {
	app      *app
	db       *db.DB
	progress *show.Progress
	writing  chan struct{} // bounds the writes under way
	wg       sync.WaitGroup
	mu       sync.Mutex
	done     int
	failed   int
	fault    error // of the store: the lines after it are not tried
}

const (
	importAtOnce  = 1000
	maxImportLine = 1 << 20
)

func (a *app) importLines(d *db.DB, in io.Reader, size int64, name string) error {
	if err := d.Note(relay.ActImportBegun, "from "+relay.Quote(name)); err != nil {
		return cli.Plain(err)
	}
	i := &importer{app: a, db: d, progress: show.NewProgress(a.Stderr, "importing", size),
		writing: make(chan struct{}, importAtOnce)}
	began := time.Now()
	err := i.lines(bufio.NewReaderSize(in, maxImportLine))
	i.wg.Wait()
	i.progress.End()
	ended := d.Note(relay.ActImportEnded, fmt.Sprintf("%d imported, %d failed", i.done, i.failed))
	err = cmp.Or(err, i.stopped(), cli.Plain(ended))
	if printed := a.printImported(i.done, i.failed, time.Since(began)); err == nil {
		return printed
	}
	return err
}

// lines imports all lines. A line that is too long is a fault like any other: the
// lines after it are imported.
func (i *importer) lines(in *bufio.Reader) error {
	for n := 1; ; n++ {
		line, more, err := in.ReadLine()
		if fault := i.stopped(); fault != nil || err == io.EOF {
			return fault
		}
		if err != nil {
			return err
		}
		i.progress.Add(int64(len(line) + 1))
		if more {
			i.report(n, errors.New("longer than 1 MiB"))
		} else if line = bytes.TrimSpace(line); len(line) > 0 {
			i.line(n, line)
		}
		for more && err == nil {
			line, more, err = in.ReadLine()
			i.progress.Add(int64(len(line)))
		}
	}
}

func (a *app) printImported(done, failed int, took time.Duration) (err error) {
	if a.JSON {
		err = a.PrintJSON(map[string]any{"imported": done, "failed": failed})
	} else {
		_, err = fmt.Fprintf(a.Stdout, "%d imported, %d failed, %.0f a second\n",
			done, failed, float64(done)/max(took.Seconds(), 0.001))
	}
	if err == nil && failed > 0 {
		err = cli.ExitFailure
	}
	return err
}

func (i *importer) line(n int, line []byte) {
	p, err := readImportLine(line)
	if err != nil {
		i.report(n, err)
		return
	}
	i.writing <- struct{}{}
	i.wg.Add(1)
	i.db.PutProfileThen(p, func(err error) {
		i.report(n, err)
		<-i.writing
		i.wg.Done()
	})
}

func (i *importer) report(n int, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if err == nil {
		i.done++
		return
	}
	i.failed++
	if i.fault != nil { // the lines that were on their way
		return
	}
	if isOfTheStore(err) {
		i.fault = fmt.Errorf("stopped at line %d: %w", n, cli.Plain(err))
		return
	}
	i.progress.Clear()
	fmt.Fprintf(i.app.Stderr, "line %d: %v\n", n, cli.Plain(err))
}

// isOfTheStore reports whether an error would meet every other line as well.
func isOfTheStore(err error) bool {
	var e *relay.Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Code {
	case relay.DiskFull, relay.DatabaseLocked, relay.StoreFailed, relay.ShuttingDown, relay.Internal:
		return true
	}
	return false
}

// stopped returns the fault of the store that has ended the import, if there was one.
func (i *importer) stopped() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.fault
}

func readImportLine(line []byte) (*relay.PutProfile, error) {
	var v struct {
		MechaID string          `json:"mecha_id"`
		Profile json.RawMessage `json:"profile"`
	}
	if err := json.Unmarshal(line, &v); err != nil {
		return nil, errors.New(`not of the form {"mecha_id": "…", "profile": {…}}`)
	}
	address, err := relay.ParseAddress(v.MechaID)
	if err != nil {
		return nil, err
	}
	if len(v.Profile) == 0 {
		v.Profile = json.RawMessage("{}")
	}
	p, err := relay.ReadProfile(v.Profile)
	return &relay.PutProfile{At: time.Now(), Address: address, Register: true, Profile: p.Stored()}, err
}
