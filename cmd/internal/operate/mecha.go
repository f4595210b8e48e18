package operate

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"relay/cmd/internal/cli"
	"relay/cmd/internal/show"
	"relay/db"
	"relay/db/look"
	"relay/db/relay"
)

func (a *app) mechaCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mecha",
		Short: "List, show and remove Mechas, and set their profiles",
		Long: `List, show and remove Mechas, and set their profiles. The commands work on the
database file; a server that runs on it does it for them.`,
		Example: "  relay mecha list",
	}
	cli.Group(cmd)
	cmd.AddCommand(a.mechaList(), a.mechaShow(), a.mechaRemove(), a.mechaProfile())
	return cmd
}

// changesMecha returns a command whose first argument is the address of a Mecha; f gets the other arguments
// unchanged.
func (a *app) changesMecha(cmd *cobra.Command, f func(*db.DB, relay.Address, []string) error) *cobra.Command {
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		address, err := relay.ParseAddress(args[0])
		if err != nil {
			return cli.Plain(err)
		}
		return a.WithDB(false, func(d *db.DB) error { return cli.Plain(f(d, address, args[1:])) })
	}
	a.DBFlag(cmd)
	return cmd
}

// showsMecha returns a command that only reads and whose argument is the address of a Mecha.
func (a *app) showsMecha(cmd *cobra.Command, f func(*look.Inspector, relay.Address) error) *cobra.Command {
	cmd.Args = cli.Exactly(1, "one address")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		address, err := relay.ParseAddress(args[0])
		if err != nil {
			return cli.Plain(err)
		}
		return a.WithInspector(func(in *look.Inspector) error { return f(in, address) })
	}
	a.DBFlag(cmd)
	return cmd
}

func (a *app) mechaList() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the registered Mechas",
		Example: "  relay mecha list --json | jq -r .mecha_id",
		Args:    cli.Exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.WithInspector(func(in *look.Inspector) error { return a.printMechas(cmd.Context(), in) })
		},
	}
	a.DBFlag(cmd)
	return cmd
}

const directoryPage = 500

func (a *app) printMechas(ctx context.Context, in *look.Inspector) error {
	var w *show.Table
	if !a.JSON {
		w = show.NewTable(a.Stdout, "MECHA", "NAME", "TAGS", "VISIBILITY", "UPDATED")
	}
	for after := relay.Address(""); ; {
		page, err := in.Directory(after, directoryPage)
		if err != nil {
			return err
		}
		for _, e := range page {
			after = e.Address
			if a.JSON {
				if err := a.PrintJSON(entryJSON(e)); err != nil {
					return err
				}
			} else {
				w.Row(e.Address, show.Dash(e.DisplayName), show.Dash(strings.Join(e.Tags, " ")), e.Visibility,
					show.TimeOrDash(e.UpdatedAt))
			}
		}
		if len(page) < directoryPage {
			return w.End()
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// directoryEntry is an entry of the directory as the commands print it.
type directoryEntry struct {
	MechaID   relay.Address `json:"mecha_id"`
	CreatedAt string        `json:"created_at"`
	UpdatedAt string        `json:"updated_at"`
	Profile   relay.Profile `json:"profile"`
}

func entryJSON(e relay.Entry) directoryEntry {
	return directoryEntry{e.Address, relay.FormatTime(e.CreatedAt), relay.FormatTime(e.UpdatedAt), e.Profile}
}

func (a *app) mechaShow() *cobra.Command {
	return a.showsMecha(&cobra.Command{
		Use:     "show ADDRESS",
		Short:   "Show a Mecha: its profile, its live keys, when it was last seen",
		Example: "  relay mecha show planner^acme",
	}, func(in *look.Inspector, address relay.Address) error {
		e, err := in.Entry(address)
		if err != nil {
			return err
		}
		keys, err := in.KeysOf(address)
		if err != nil {
			return err
		}
		live, seen := 0, time.Time{}
		for _, k := range keys {
			if k.Check(time.Now()) == nil {
				live++
			}
			if k.LastUsedAt.After(seen) {
				seen = k.LastUsedAt
			}
		}
		return a.PrintIndented(struct {
			directoryEntry
			LiveKeys int     `json:"live_keys"`
			LastSeen *string `json:"last_seen"`
		}{entryJSON(e), live, show.OptionalTime(seen)})
	})
}

func (a *app) mechaRemove() *cobra.Command {
	return a.changesMecha(&cobra.Command{
		Use:   "remove ADDRESS",
		Short: "Remove a Mecha from the directory and end its keys",
		Long: `Remove a Mecha from the directory. Its keys end at once, its profile is deleted,
and messages to it are refused. The messages that it sent or received stay. If
the address is registered again, it is the same Mecha, with its history.`,
		Example: "  relay mecha remove planner^acme",
		Args:    cli.Exactly(1, "one address"),
	}, func(d *db.DB, address relay.Address, _ []string) error {
		if err := d.RemoveMecha(&relay.RemoveMecha{At: time.Now(), Address: address}); err != nil {
			return err
		}
		if a.JSON {
			return a.PrintJSON(map[string]relay.Address{"removed": address})
		}
		_, err := fmt.Fprintf(a.Stdout, "%s is removed\n", address)
		return err
	})
}

func (a *app) mechaProfile() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "profile",
		Short: "Get or set a Mecha's profile",
		Example: `  relay mecha profile get planner^acme
  relay mecha profile set planner^acme profile.json`,
	}
	cli.Group(cmd)
	cmd.AddCommand(a.profileGet(), a.profileSet())
	return cmd
}

func (a *app) profileGet() *cobra.Command {
	return a.showsMecha(&cobra.Command{
		Use:     "get ADDRESS",
		Short:   "Print a Mecha's profile, in the form that set reads",
		Example: "  relay mecha profile get planner^acme > profile.json",
	}, func(in *look.Inspector, address relay.Address) error {
		e, err := in.Entry(address)
		if err != nil {
			return err
		}
		if a.JSON {
			return a.PrintJSON(e.Profile)
		}
		text, err := show.Indented(e.Profile)
		if err != nil {
			return err
		}
		if _, err := relay.ReadProfile(text); err != nil { // with its spaces it would be too long for set
			return a.PrintJSON(e.Profile)
		}
		_, err = a.Stdout.Write(text)
		return err
	})
}

func (a *app) profileSet() *cobra.Command {
	return a.changesMecha(&cobra.Command{
		Use:   "set ADDRESS [FILE|-]",
		Short: "Replace a Mecha's profile",
		Long: `Replace a Mecha's profile with the JSON object in FILE, or @FILE as in relay
send. Without a file, or with -, read it from stdin.`,
		Example: `  relay mecha profile set planner^acme profile.json
  echo '{"description":"plans trips"}' | relay mecha profile set planner^acme`,
		Args: cli.Between(1, 2, "an address and at most one file"),
	}, func(d *db.DB, address relay.Address, more []string) error {
		body, err := a.Input(more)
		if err != nil {
			return err
		}
		p, err := relay.ReadProfile(body)
		if err != nil {
			return err
		}
		if err := d.PutProfile(&relay.PutProfile{At: time.Now(), Address: address, Profile: p.Stored()}); err != nil {
			return err
		}
		if a.JSON {
			return a.PrintJSON(map[string]relay.Address{"updated": address})
		}
		_, err = fmt.Fprintf(a.Stdout, "the profile of %s is set\n", address)
		return err
	})
}
