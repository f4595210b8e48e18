package inspect

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"relay/cmd/internal/cli"
	"relay/cmd/internal/display"
	"relay/cmd/internal/show"
	"relay/db/look/browse"
	"relay/db/relay"
)

func (a *app) auditCommand() *cobra.Command {
	var since string
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Show the audit log: who changed what, when",
		Long: `Show the audit log, the oldest entry first: keys issued, rotated and revoked,
Mechas removed, profiles set by a command, imports, restores, compactions and
removals of messages. Each entry has its time, the user of this machine and the
command.

The log is in the database, written in the same transaction as the change
itself. relay restore keeps it. It has the newest 100,000 entries. Anyone who
can write the file can also change its log.`,
		Example: `  relay audit --since 7d
  relay audit --json | jq 'select(.what == "key_revoked")'`,
		Args: cli.Exactly(0, "no arguments"),
		RunE: func(*cobra.Command, []string) error {
			from, err := parseWhen("since", since, time.Now())
			if err != nil {
				return err
			}
			return a.read(func(in browse.Inspector) error {
				acts, err := in.Acts(from)
				if err != nil {
					return err
				}
				return a.printActs(acts)
			})
		},
	}
	cmd.Flags().StringVar(&since, "since", "", "`time` of the first entry, as in 2026-11-21, 90m or 7d")
	a.DBFlag(cmd)
	return cmd
}

func (a *app) printActs(acts []relay.NotedAct) error {
	if !a.JSON {
		return a.tableOfActs(acts)
	}
	for _, n := range acts {
		var uid *int64
		if n.By.UID != relay.NoUID {
			uid = &n.By.UID
		}
		err := a.PrintJSON(struct {
			At      string  `json:"at"`
			UID     *int64  `json:"uid"`
			User    *string `json:"user"`
			Command string  `json:"command"`
			What    string  `json:"what"`
			MechaID *string `json:"mecha_id"`
			KeyID   *string `json:"key_id"`
			Detail  string  `json:"detail"`
		}{relay.FormatTime(n.At), uid, show.Optional(n.By.User), n.By.Command, n.What, show.Optional(string(n.Mecha)),
			show.Optional(string(n.Key)), n.Detail})
		if err != nil {
			return err
		}
	}
	return nil
}

func (a *app) tableOfActs(acts []relay.NotedAct) error {
	if len(acts) == 0 {
		_, err := fmt.Fprintln(a.Stderr, "the log has no entry for this time")
		return err
	}
	w := show.NewTable(a.Stdout, "AT", "WHO", "COMMAND", "WHAT", "MECHA", "KEY", "DETAIL")
	for _, n := range acts {
		who := n.By.User
		if n.By.UID != relay.NoUID {
			who += " (" + strconv.FormatInt(n.By.UID, 10) + ")"
		}
		w.Row(display.At(n.At), who, n.By.Command, n.What, show.Dash(string(n.Mecha)), show.Dash(string(n.Key)),
			show.Dash(n.Detail))
	}
	return w.End()
}
