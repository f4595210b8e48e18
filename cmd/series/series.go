// Package series is relay backup --every: it makes a copy of a database at each interval, by
// db/file/series, and logs what became of it. relay restore --from takes the newest.
package series

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"relay/cmd/internal/cli"
	"relay/cmd/internal/show"
	"relay/db/file"
	"relay/db/file/series"
	"relay/db/relay"
	"relay/http/docs"
)

func init() {
	cli.Register(cli.Ring{Name: "series", Extend: map[string]func(*cli.App, *cobra.Command){
		"backup": func(a *cli.App, backup *cobra.Command) { (&every{App: a}).extend(backup) },
	}})
	docs.Register(docs.Ring{Name: "series"}) // the page "backups" tells of it
}

// every is relay backup --every, with its flags.
type every struct {
	*cli.App
	interval  time.Duration // 0: one copy
	keep      int
	logFormat string
}

const minInterval = time.Second

// extend adds --every to relay backup.
func (e *every) extend(backup *cobra.Command) {
	backup.Use = "backup FILE|DIR"
	backup.Args = cli.Exactly(1, "one file, the copy, or with --every one folder")
	backup.Long += `

With --every, the command runs until SIGTERM or Ctrl-C, and makes a copy in the
folder DIR at once and then at each interval. A copy is named by its time in
UTC, as relay-20260131T120000.000Z.db; relay restore --from DIR takes the
newest. Each is checked as by relay check --quick. The newest --keep copies
stay; older ones and parts of copies are removed, and no other file. If no copy
can be made, because DIR is missing or its disk is full, the log says so, and
the next interval tries again. The same holds if the newest copy in DIR is of
another database, or newer than this one. The copying pauses for half of the
time, to leave the disk to the server. One process at a time can make copies in
DIR.`
	backup.Example += "\n  relay backup --every 1m --keep 24 /backups"
	backup.Flags().DurationVar(&e.interval, "every", 0,
		"make a copy in DIR at each `interval`, from 1s, until the command is ended")
	backup.Flags().IntVar(&e.keep, "keep", 24, "with --every: how many copies stay in DIR")
	backup.Flags().StringVar(&e.logFormat, "log-format", "auto",
		"with --every: text, json, or auto: text on a terminal, else json")
	once := backup.RunE
	backup.RunE = func(cmd *cobra.Command, args []string) error {
		if err := e.check(cmd); err != nil {
			return err
		}
		if e.interval == 0 {
			return once(cmd, args)
		}
		return e.run(cmd.Context(), file.BackupOptions{From: e.DBPath, To: args[0], Schema: e.Schema,
			Unchecked: isSet(cmd, "no-check"), Quick: true})
	}
}

// isSet returns the value of a flag of relay backup.
func isSet(cmd *cobra.Command, flag string) bool { return cmd.Flag(flag).Value.String() == "true" }

// check refuses values and combinations of flags that make no sense.
func (e *every) check(cmd *cobra.Command) error {
	given := cmd.Flags().Changed
	switch {
	case !given("every") && given("keep"):
		return cli.Usagef("--keep is for --every")
	case !given("every"):
		return nil
	case e.interval < minInterval:
		return cli.Usagef("--every must be 1s or more")
	case e.keep < 1:
		return cli.Usagef("--keep must be 1 or more")
	case isSet(cmd, "force"):
		return cli.Usagef("--force is for one copy: with --every, each copy has a name of its own")
	}
	return cli.CheckLog(e.logFormat, "info")
}

// run makes a copy in the folder o.To at each interval, until ctx ends. It fails
// only if another process makes copies in the folder when it begins.
func (e *every) run(ctx context.Context, o file.BackupOptions) error {
	log, end := e.Logger(e.logFormat, "info")
	defer end()
	o.Between = func(took time.Duration) { pause(ctx, took) } // to leave disk and processor to a server
	copies := series.New(o.To, e.keep)
	defer copies.Close()
	ticks := time.NewTimer(0)
	defer ticks.Stop()
	for first := true; ; first = false {
		select {
		case <-ctx.Done():
			log.Info("stopped")
			return nil
		case <-ticks.C:
		}
		began := time.Now()
		r, err := copies.Add(ctx, o)
		took := time.Since(began)
		if first && errors.Is(err, series.ErrHeld) {
			return err
		}
		ticks.Reset(e.interval - took%e.interval) // a copy that takes longer leaves out the times that it has missed
		if ctx.Err() != nil && err != nil {
			continue
		}
		if err := e.say(log, r, o, took, err); err != nil {
			return err
		}
	}
}

// pause waits until the time is over or ctx has ended.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// say logs what became of one copy, or prints it with --json. Its error is from printing.
func (e *every) say(
	log *slog.Logger, r file.BackupResult, o file.BackupOptions, took time.Duration, failed error,
) error {
	switch {
	case failed != nil && r.Path == "":
		log.Error("no copy was made; the next interval tries again", "error", e.NotCopied(o, r, failed))
		return nil
	case failed != nil:
		log.Error("old copies stay", "error", failed)
	}
	at, newest := time.Time{}, "none"
	if r.Last != 0 {
		at, newest = r.Last.Time(), relay.FormatTime(r.Last.Time())
	}
	if e.JSON {
		return e.PrintJSON(copied{cli.CopiedJSON(r, o, took), int64(r.Last), show.OptionalTime(at)})
	}
	log.Info("copied", "file", r.Path, "size", show.Bytes(r.Bytes), "messages", r.Messages, "checked", !o.Unchecked,
		"took", show.Gap(took), "position", int64(r.Last), "newest_write", newest)
	return nil
}

// copied is a line of relay backup --every with --json: that of relay backup, and the newest write.
type copied struct {
	cli.Copied
	Position int64   `json:"position"`        // of the last write in the copy, or 0
	Newest   *string `json:"newest_write_at"` // the time of that write
}
