package operate

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"relay/cmd/internal/cli"
	"relay/cmd/internal/show"
	"relay/db/file"
	"relay/db/relay"
)

// everyOptions are the flags of relay backup --every.
type everyOptions struct {
	interval  time.Duration // 0: one copy
	keep      int
	logFormat string
}

const leastInterval = time.Second

func (e *everyOptions) flags(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&e.interval, "every", 0,
		"make a copy in DIR at each `interval`, from 1s, until the command is ended")
	cmd.Flags().IntVar(&e.keep, "keep", 24, "with --every: how many copies stay in DIR")
	cmd.Flags().StringVar(&e.logFormat, "log-format", "auto",
		"with --every: text, json, or auto: text on a terminal, else json")
}

// check refuses values and combinations of flags that make no sense.
func (e *everyOptions) check(cmd *cobra.Command, o file.BackupOptions) error {
	given := cmd.Flags().Changed
	switch {
	case !given("every") && given("keep"):
		return cli.Usagef("--keep is for --every")
	case !given("every"):
		return nil
	case e.interval < leastInterval:
		return cli.Usagef("--every must be 1s or more")
	case e.keep < 1:
		return cli.Usagef("--keep must be 1 or more")
	case o.Replace:
		return cli.Usagef("--force is for one copy: with --every, each copy has a name of its own")
	}
	return cli.CheckLog(e.logFormat, "info")
}

// backupEvery makes a copy in the folder o.To at each interval, until ctx ends. It fails
// only if another process makes copies in the folder when it begins.
func (a *app) backupEvery(ctx context.Context, o file.BackupOptions, e everyOptions) error {
	log, end := a.Logger(e.logFormat, "info")
	defer end()
	o.Schema, o.Quick, o.Slow = a.Schema, true, true
	series := file.NewSeries(o.To, e.keep)
	defer series.Close()
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
		r, err := series.Add(ctx, o)
		took := time.Since(began)
		if first && errors.Is(err, file.ErrSeriesHeld) {
			return err
		}
		ticks.Reset(e.interval - took%e.interval) // a copy that takes longer leaves out the times that it has missed
		if ctx.Err() != nil && err != nil {
			continue
		}
		if err := a.sayCopied(log, r, o, took, err); err != nil {
			return err
		}
	}
}

// sayCopied logs what became of one copy, or prints it with --json. Its error is that of
// printing.
func (a *app) sayCopied(
	log *slog.Logger, r file.BackupResult, o file.BackupOptions, took time.Duration, failed error,
) error {
	switch {
	case failed != nil && r.Path == "":
		log.Error("no copy was made; the next interval tries again", "error", notCopied(o, r, failed))
		return nil
	case failed != nil:
		log.Error("old copies stay", "error", failed)
	}
	if a.JSON {
		return a.PrintJSON(copiedAgain{copiedJSON(r, o, took), int64(r.Last), show.OptionalTime(timeOf(r.Last))})
	}
	log.Info("copied", "file", r.Path, "size", show.Bytes(r.Bytes), "messages", r.Messages, "checked", !o.Unchecked,
		"took", show.Gap(took), "position", int64(r.Last), "newest_write", newestWrite(r.Last))
	return nil
}

// timeOf gives the time of a position; the zero time for the position 0, which is none.
func timeOf(p relay.Position) time.Time {
	if p == 0 {
		return time.Time{}
	}
	return p.Time()
}

// newestWrite writes the time of the last write in a copy for people.
func newestWrite(p relay.Position) string {
	if p == 0 {
		return "none"
	}
	return relay.FormatTime(p.Time())
}

// copiedAgain is a line of relay backup --every with --json.
type copiedAgain struct {
	copied
	Position int64   `json:"position"`        // of the last write in the copy; 0 if there is none
	Newest   *string `json:"newest_write_at"` // the time of that write
}
