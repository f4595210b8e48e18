package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"relay/cmd/internal/cli"
	"relay/cmd/internal/show"
	"relay/cmd/internal/system"
	"relay/db"
	"relay/db/admin"
	"relay/db/file"
)

// status is a node's report about its cluster, as JSON.
type status struct {
	Cluster string         `json:"cluster"`
	Node    string         `json:"node"`
	Fresh   bool           `json:"fresh"`
	Leader  *string        `json:"leader"`
	First   uint64         `json:"first_entry"` // that the log still has
	Last    uint64         `json:"last_entry"`
	Bytes   uint64         `json:"log_bytes"`
	Members []memberStatus `json:"members"`
}

type memberStatus struct {
	Name      string   `json:"name"`
	Addr      string   `json:"address"`
	Live      bool     `json:"live"`
	Follows   bool     `json:"follows"`   // its store follows the log
	Holds     bool     `json:"holds_log"` // it has a copy of the log, which counts for the majority
	SilentFor *float64 `json:"silent_seconds"`
	Applied   uint64   `json:"applied_entry"`
	Differs   bool     `json:"differs"` // its store has decided otherwise than the reporting node's
	Clock     *float64 `json:"clock_ahead_seconds"`
	Version   string   `json:"version"`
	Rules     int64    `json:"rules"`       // of the log that its database applies
	Knows     int64    `json:"knows_rules"` // the newest that its program knows
}

// statusPatience is how long relay cluster status waits for the node.
const statusPatience = 10 * time.Second

func (a *app) statusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the state of the cluster, as this machine's node sees it",
		Long: `Show the state of the cluster as the node that serves the database sees it: its
members, which of them leads the log, the last entry of each, and which three
are up to date: two of these must run. If no node serves the database, the
command shows the last entry of the database.`,
		Example: `  relay cluster status
  relay cluster status --db /var/lib/relay/relay.db --json | jq .leader`,
		Args: cli.Exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.printStatus(cmd.Context()) },
	}
	a.DBFlag(cmd)
	return cmd
}

func (a *app) printStatus(ctx context.Context) error {
	at, follows, err := file.ReplicaAt(a.DBPath)
	if err != nil {
		return system.Denied(a.DBPath, false, err)
	}
	if !follows {
		return fmt.Errorf("%s is a plain file: it belongs to no cluster", a.DBPath)
	}
	ctx, cancel := context.WithTimeout(ctx, statusPatience)
	defer cancel()
	server, err := admin.NewClient(a.DBPath)
	if err != nil {
		return cli.Plain(err)
	}
	defer server.Close()
	text, err := server.Ask(ctx, []byte(db.StatusQuestion), nil)
	if errors.Is(err, admin.ErrNoServer) {
		return a.printStopped(at)
	}
	if err != nil {
		return cli.Plain(err)
	}
	var st status
	if err := json.Unmarshal(text, &st); err != nil {
		return fmt.Errorf("cannot read the answer of the node: %w", err)
	}
	if a.JSON {
		return a.PrintJSON(st)
	}
	return a.printCluster(st)
}

// printStopped prints the last entry in the database of a stopped node.
func (a *app) printStopped(at file.Replica) error {
	if a.JSON {
		return a.PrintJSON(map[string]any{"log": fmt.Sprintf("%x", at.Log), "applied_entry": at.Applied, "served": false})
	}
	_, err := fmt.Fprintf(a.Stdout, "no node serves %s; it has the entries of the log up to %d\n", a.DBPath, at.Applied)
	return err
}

func (a *app) printCluster(st status) error {
	leader, state := "none is known", "answers reads and writes"
	if st.Leader != nil {
		leader = *st.Leader
	}
	if !st.Fresh {
		state = "is cut off or behind the others: it answers no reads"
	}
	fmt.Fprintf(a.Stdout, "node %s %s\nleader of the log: %s; entries %d to %d, %s\n\n",
		st.Node, state, leader, st.First, st.Last, show.Bytes(int64(st.Bytes)))
	w := show.NewTable(a.Stdout, "NODE", "ADDRESS", show.Heading("STATE"), "ENTRY", "UP TO DATE", "CLOCK", "VERSION")
	for _, m := range st.Members {
		state, colour := "follows the log", show.Green
		switch {
		case m.Differs:
			state, colour = "differs from "+st.Node, show.Red
		case !m.Live && m.SilentFor == nil:
			state, colour = "not heard yet", show.Red
		case !m.Live:
			state, colour = fmt.Sprintf("silent for %.0f s", *m.SilentFor), show.Red
		case !m.Follows:
			state, colour = "starting", show.Grey
		}
		clock := "—"
		if m.Clock != nil && m.Name != st.Node {
			clock = fmt.Sprintf("%+.2f s", *m.Clock)
		}
		holds := "no"
		if m.Holds {
			holds = "yes"
		}
		w.Row(m.Name, m.Addr, colour.Paint(state), m.Applied, holds, clock, show.Dash(m.Version))
	}
	return w.End()
}
