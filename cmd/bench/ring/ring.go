// Package ring is the command relay bench, which measures a relay by package bench: its flags, and the tables
// of figures.
package ring

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"relay/cmd/bench"
	"relay/cmd/internal/cli"
	"relay/cmd/internal/display"
)

func init() {
	cli.Register(cli.Ring{Name: "bench", Commands: cli.Commands("server", (*app).command)})
}

type app struct{ *cli.App }

func (a *app) command() *cobra.Command {
	c := bench.Config{}
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Benchmark a relay on this machine",
		Long: `Benchmark a relay over real HTTP and WebSockets, with the signed requests of
many Mechas.

bench starts its own relay, as a separate process and without limits, on a new
database in --dir, and removes that database at the end, unless --db names it.
Put --dir on the disk where your database will be: /tmp may be in memory. A run
takes a few minutes and a few hundred MB of disk. --only and --duration make it
shorter.

The messages resemble those of agents: thousands of conversations of 2 to 20
messages, with a correlation id; half of the conversations have a label of
their sender, in the other half each message names the one before. A payload
has 64 bytes and an exponentially distributed rest, with a mean of --payload. A
few Mechas get most of the messages, and a tenth of the Mechas listen. Bare
messages, with only a recipient and a payload of one size, are measured as
well.

Sends are measured alternately on the relay and on a second server, lean, which
only checks the requests and stores nothing: this shows what HTTP and signatures
cost any server in Go. A figure with ? cannot be trusted; the lines below the
table say why.

With --stored, the database gets this many messages before anything is
measured. A million takes about a minute and 0.9 GB. Every second one is
acknowledged, and a tenth go to one Mecha. The stage scale then compares this
database with one of few messages. With --db, the file is kept and reused the
next time.

With --url, bench measures a running relay, whose database is --db. It creates
Mechas there, in their own crew bench-…, and removes them at the end. Their
messages stay, and the relay's limits affect the figures.

The stage fairness runs only when --only names it, and takes ten minutes. One
Mecha, the attacker, uses all that its key allows, in several ways (--attacks),
against a relay with default limits. The table has the times of another Mecha:
alone, next to a control load that takes as much CPU, and under attack. The
relay passes if nothing failed under attack, and the p99 under attack is at
most 3 times the greater of the two others.

Stages: ` + strings.Join(bench.Stages(), ", ") + `.
Attacks: ` + strings.Join(bench.Attacks(), ", ") + `.`,
		Example: `  relay bench
  relay bench --only send --connections 64 --duration 5s
  relay bench --dir /var/lib/relay --json > figures.json
  relay bench --only scale,start --stored 5000000 --profiles 10000 --db big.db
  relay bench --only fairness --attacks socket-acks,searches --profiles 5000
  relay bench --url http://127.0.0.1:8080 --db relay.db --mechas 100 --only push`,
		Args: cli.Exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.bench(cmd, c) },
	}
	f := cmd.Flags()
	f.StringVar(&c.Dir, "dir", ".", "the `folder` of the database")
	f.StringVar(&c.URL, "url", "", "`address` of a running relay to measure instead of a new one")
	f.StringVar(&c.DB, "db", "",
		"the database `file` of that relay (relay.db); without --url, one to keep for the next run")
	f.DurationVar(&c.Duration, "duration", 2*time.Second, "time of each round")
	f.IntVar(&c.Repeats, "repeats", 3, "number of rounds; their median is the figure")
	f.IntSliceVar(&c.Connections, "connections", []int{1, 8, 64, 256},
		"number of connections that send at once; several numbers are measured one by one")
	f.IntVar(&c.Payload, "payload", 512, "the size of a payload in `bytes`; the mean, where they differ")
	f.IntVar(&c.Mechas, "mechas", 1000, "number of Mechas that send and receive")
	f.IntVar(&c.Sockets, "sockets", 1000, "maximum number of sockets, for fan-out and idle memory")
	f.IntVar(&c.Messages, "messages", 10_000, "number of messages in the mailbox that is read")
	f.IntVar(&c.Profiles, "profiles", 2000, "number of profiles that are searched")
	f.IntVar(&c.Stored, "stored", 0, "number of messages in the database before anything is measured")
	f.DurationVar(&c.StoredOver, "stored-over", 30*24*time.Hour, "time span, up to now, over which these were sent")
	f.StringSliceVar(&c.Only, "only", nil, "only these `stages`")
	f.StringSliceVar(&c.Attacks, "attacks", nil, "of the stage fairness, only these `attacks`")
	f.StringVar(&c.Server, "server-program", "", "the `program` whose fairness is measured")
	f.MarkHidden("server-program") // to compare with an older one
	cmd.AddCommand(a.leanCommand(), a.attackerCommand())
	return cmd
}

// leanCommand runs the minimal server, with which bench compares HTTP.
func (a *app) leanCommand() *cobra.Command {
	return &cobra.Command{
		Use:    bench.Lean + " KEYS",
		Short:  "Run the minimal server that checks requests, for relay bench",
		Hidden: true,
		Args:   cli.Exactly(1, "a file with the hashes of the keys"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return bench.ServeLean(cmd.Context(), args[0], a.Stderr)
		},
	}
}

// attackerCommand runs the attacker of the stage fairness.
func (a *app) attackerCommand() *cobra.Command {
	return &cobra.Command{
		Use:    bench.Attacker,
		Short:  "Attack a relay, for relay bench",
		Hidden: true,
		Args:   cli.Exactly(0, "no arguments"),
		RunE:   func(cmd *cobra.Command, _ []string) error { return bench.Attack(cmd.Context(), a.Stdin, a.Stdout) },
	}
}

func (a *app) bench(cmd *cobra.Command, c bench.Config) (err error) {
	if err := checkBench(c); err != nil {
		return err
	}
	if c.URL != "" && c.DB == "" {
		c.DB = "relay.db"
	}
	if c.Program, err = os.Executable(); err != nil {
		return err
	}
	line := display.NewStatusLine(a.Stderr)
	c.Schema, c.Relay, c.By, c.Progress = a.Schema, cli.BuildVersion().Version, a.Actor(), func(
		what string, perSecond float64,
	) {
		if perSecond > 0 {
			what = fmt.Sprintf("%s: %s/s", what, count(perSecond))
		}
		line.Show(what)
	}
	report, err := bench.Run(cmd.Context(), c)
	line.Show("")
	if errors.Is(err, context.Canceled) {
		return errors.New("interrupted; nothing is left behind")
	}
	if err != nil && (report == nil || len(report.Rows)+len(report.Fairness) == 0) {
		return err
	}
	print := a.printBench
	if a.JSON {
		print = func(r *bench.Report) error { return a.PrintJSON(r) }
	}
	return errors.Join(err, print(report))
}

const maxStoredOver = 10 * 365 * 24 * time.Hour

func checkBench(c bench.Config) error {
	for _, stage := range c.Only {
		if !slices.Contains(bench.Stages(), stage) {
			return cli.Usagef("--only: unknown stage %q; known are %s", stage, strings.Join(bench.Stages(), ", "))
		}
	}
	for _, attack := range c.Attacks {
		if !slices.Contains(bench.Attacks(), attack) {
			return cli.Usagef("--attacks: unknown attack %q; known are %s", attack, strings.Join(bench.Attacks(), ", "))
		}
	}
	fair := slices.Contains(c.Only, bench.Fairness)
	if len(c.Attacks) > 0 && !fair {
		return cli.Usagef("--attacks requires --only %s", bench.Fairness)
	}
	if c.URL != "" && fair {
		return cli.Usagef("--only %s cannot be combined with --url: each attack has its own relay", bench.Fairness)
	}
	if fair && (c.DB != "" || c.Stored > 0) {
		return cli.Usagef("--only %s cannot be combined with --db (RELAY_DB) or --stored: each attack has its own relay, "+
			"with a new database", bench.Fairness)
	}
	if c.Duration < 10*time.Millisecond || c.Repeats < 1 || c.Mechas < 2 || c.Sockets < 1 || c.Messages < 2 ||
		c.Profiles < 1 || len(c.Connections) == 0 || slices.Min(c.Connections) < 1 {
		return cli.Usagef("the minimum is --duration 10ms, --mechas 2, --messages 2, and 1 of everything else")
	}
	if c.Payload < len(`{"text":""}`) || c.Payload > 1_000_000 {
		return cli.Usagef("--payload must be from 11 to 1000000: it is a JSON object")
	}
	if c.URL != "" && !strings.HasPrefix(c.URL, "http://") && !strings.HasPrefix(c.URL, "https://") {
		return cli.Usagef("--url must begin with http:// or https://; %q does not", c.URL)
	}
	if c.URL != "" && c.Stored > 0 {
		return cli.Usagef("--stored cannot be combined with --url: bench fills only the database of its own relay")
	}
	if slices.Contains(c.Only, "scale") && c.Stored == 0 {
		return cli.Usagef("--only scale requires --stored: it compares a database of that many messages with one of few")
	}
	if c.Stored < 0 || c.Stored > 0 && c.Stored < 1000 || c.StoredOver < time.Second || c.StoredOver > maxStoredOver {
		return cli.Usagef("--stored must be 0, or at least 1000, and --stored-over from 1s to %s", maxStoredOver)
	}
	return nil
}
