// Package check is relay check: it prints what the checks of db/file/check find in a database
// or a backup, and brings these into the program, so that relay backup and relay restore check
// their copies by them, too.
package check

import (
	"context"
	"errors"
	"fmt"

	"relay/cmd/internal/cli"
	"relay/cmd/internal/show"
	"relay/cmd/internal/system"
	"relay/db/file"
	_ "relay/db/file/check"
	"relay/db/relay"
	"relay/http/docs"

	"github.com/spf13/cobra"
)

func init() {
	cli.Register(cli.Ring{Name: "check", Commands: cli.Commands("operating", (*app).command)})
	docs.Register(docs.Ring{Name: "check"}) // the page "backups" tells of it
}

type app struct{ *cli.App }

func (a *app) command() *cobra.Command {
	quick := false
	cmd := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Check that a database, or a backup, is whole",
		Long: `Check that FILE, or else the database of --db, is whole. SQLite's own check of
its integrity and references comes first. Then come the rules of relay: states,
orders, interned strings, chains of receipts, payloads and their hashes,
addresses, profiles.

The command only reads. It sees one state of the file, leaves nothing beside it,
and works while a server runs. It takes about 20 s for a million messages, and
the server's log grows meanwhile, even while the command is stopped (Ctrl-Z):
under load, check a backup of a large database.

Each check prints a line, and the first few faults below it. Exit codes: 0 no
faults; 1 faults, or not a relay database; 2 wrong usage. If there are faults,
stop the server and restore a backup.`,
		Example: `  relay check
  relay check /backups/relay-2026-01-31.db
  relay check --quick --json | jq -r 'select(.faults > 0)'`,
		Args: cli.Between(0, 1, "at most one file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				a.DBPath = args[0] // stronger than --db, which the environment may set
			}
			return a.check(cmd.Context(), a.DBPath, quick)
		},
	}
	cmd.Flags().BoolVar(&quick, "quick", false,
		"leave out the checks that read every payload or compare indexes with their tables")
	a.DBFlag(cmd)
	return cmd
}

func (a *app) check(ctx context.Context, path string, quick bool) error {
	progress, end := show.Reporting(a.Stderr)
	var printing error
	r, err := file.Check(ctx, file.CheckOptions{
		Path: path, Schema: a.Schema, Quick: quick, Progress: progress,
		Report: func(f file.Finding) {
			end()
			if printing == nil {
				printing = a.printFinding(f)
			}
		},
	})
	end()
	switch {
	case errors.Is(err, context.Canceled):
		return errors.New("interrupted: the check is not complete")
	case err != nil:
		return system.Denied(path, false, err)
	case printing != nil:
		return printing
	}
	if err := a.printChecked(r); err != nil {
		return err
	}
	if r.Faults > 0 {
		return cli.ExitFailure
	}
	return nil
}

func (a *app) printFinding(f file.Finding) error {
	if a.JSON {
		if f.Examples == nil {
			f.Examples = []string{}
		}
		return a.PrintJSON(struct {
			Check    string   `json:"check"`
			Rule     string   `json:"rule"`
			Faults   int      `json:"faults"`
			Warning  bool     `json:"warning,omitempty"` // the faults are only warnings
			Skipped  *string  `json:"skipped,omitempty"`
			Examples []string `json:"examples"`
		}{f.Check, f.Rule, f.Faults, f.Warning, show.Optional(f.Skipped), f.Examples})
	}
	outcome := "ok"
	switch {
	case f.Skipped != "":
		outcome = "left out: " + f.Skipped
	case f.Faults > 0 && f.Warning:
		outcome = "warning"
	case f.Faults > 0:
		outcome = fmt.Sprintf("%s against the rule: %s", show.Count(f.Faults, "fault"), f.Rule)
	}
	if _, err := fmt.Fprintf(a.Stdout, "%-14s %s\n", f.Check, outcome); err != nil {
		return err
	}
	for _, example := range f.Examples {
		if _, err := fmt.Fprintf(a.Stdout, "    %s\n", relay.Visible(example)); err != nil {
			return err
		}
	}
	if more := f.Faults - len(f.Examples); more > 0 {
		_, err := fmt.Fprintf(a.Stdout, "    … and %d more\n", more)
		return err
	}
	return nil
}

func (a *app) printChecked(r file.CheckResult) error {
	if a.JSON {
		return a.PrintJSON(struct {
			File     string `json:"file"`
			OK       bool   `json:"ok"`
			Schema   int64  `json:"schema"`
			Bytes    int64  `json:"bytes"`
			Messages int64  `json:"messages"`
			Mechas   int64  `json:"mechas"`
			Checks   int    `json:"checks"`
			Faults   int    `json:"faults"`
			Warnings int    `json:"warnings"`
			TookMS   int64  `json:"took_ms"`
		}{r.Path, r.Faults == 0, r.Schema, r.Bytes, r.Messages, r.Mechas, r.Checks, r.Faults, r.Warnings,
			r.Took.Milliseconds()})
	}
	_, err := fmt.Fprintf(a.Stdout, "%s: %d messages, %d Mechas, schema %d; %d checks, %s\n",
		r.Path, r.Messages, r.Mechas, r.Schema, r.Checks, show.Count(r.Faults, "fault"))
	return err
}
