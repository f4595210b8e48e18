package learning

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"relay/cmd/internal/cli"
	"relay/db"
	"relay/db/relay"
)

func (a *app) searchForget() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "forget ADDRESS",
		Short: "Forget what searches have learned about a Mecha",
		Long: `Remove all that completed messages have taught about a Mecha: with which words
it was found, and how often it then completed what it was sent (relay docs
privacy). The command works on the database file; a server that runs on it
does it for the command. Messages that the Mecha completes from now on count again,
unless its profile says "learn": false.`,
		Example: "  relay search forget planner^acme",
		Args:    cli.Exactly(1, "one address"),
		RunE: func(_ *cobra.Command, args []string) error {
			address, err := relay.ParseAddress(args[0])
			if err != nil {
				return cli.Plain(err)
			}
			return a.WithDB(false, func(d *db.DB) error { return cli.Plain(a.forget(d, address)) })
		},
	}
	a.DBFlag(cmd)
	return cmd
}

func (a *app) forget(d *db.DB, address relay.Address) error {
	if err := roomOf(d).ForgetLearned(&relay.ForgetLearned{At: time.Now(), Address: address}); err != nil {
		return err
	}
	if a.JSON {
		return a.PrintJSON(map[string]relay.Address{"forgotten": address})
	}
	_, err := fmt.Fprintf(a.Stdout, "what was learned about %s is forgotten\n", address)
	return err
}
