package cmd

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"relay/db"
	"relay/db/relay"
)

func (a *app) mechaCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mecha",
		Short: "The directory: list, show, remove, profiles, import",
		Long: `The directory of Mechas and their profiles, straight in the database file: a
server that is running finds what has changed within a second.`,
		Example: `  relay mecha list
  relay mecha import agents.jsonl`,
	}
	onlyGroups(cmd)
	cmd.AddCommand(a.mechaList(), a.mechaShow(), a.mechaRemove(), a.mechaProfile(), a.mechaImport())
	return cmd
}

// onMecha makes a command that works on one address.
func (a *app) onMecha(cmd *cobra.Command, f func(context.Context, *db.DB, relay.Address) error) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		address, err := relay.ParseAddress(args[0])
		if err != nil {
			return plain(err)
		}
		return a.withDB(false, func(d *db.DB) error { return plain(f(cmd.Context(), d, address)) })
	}
	a.dbFlag(cmd)
	return cmd
}

func (a *app) mechaList() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the registered Mechas",
		Example: "  relay mecha list --json | jq -r .mecha_id",
		Args:    exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withDB(false, func(d *db.DB) error { return a.printMechas(cmd.Context(), d) })
		},
	}
	a.dbFlag(cmd)
	return cmd
}

const directoryPage = 500

func (a *app) printMechas(ctx context.Context, d *db.DB) error {
	var w *table
	if !a.json {
		w = a.tableOf("MECHA", "NAME", "TAGS", "VISIBILITY", "UPDATED")
	}
	for after := relay.Address(""); ; {
		page, err := d.Directory(ctx, after, directoryPage)
		if err != nil {
			return err
		}
		for _, e := range page {
			after = e.Address
			if a.json {
				if err := a.printJSON(entryJSON(e)); err != nil {
					return err
				}
			} else {
				w.row(e.Address, dash(e.DisplayName), dash(strings.Join(e.Tags, " ")), e.Visibility, timeOrDash(e.UpdatedAt))
			}
		}
		if len(page) < directoryPage {
			return w.end()
		}
	}
}

// harmless shows what an agent wrote: it could forge lines, or steer the terminal.
func harmless(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

// directoryEntry is an entry as the commands print it.
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
	return a.onMecha(&cobra.Command{
		Use:     "show ADDRESS",
		Short:   "Show a Mecha: profile, keys, when it was last seen",
		Example: "  relay mecha show planner^acme",
		Args:    exactly(1, "one address"),
	}, func(ctx context.Context, d *db.DB, address relay.Address) error {
		e, err := d.Entry(ctx, address, "")
		if err != nil {
			return err
		}
		keys, err := d.Keys(ctx, address)
		if err != nil {
			return err
		}
		live, seen := 0, time.Time{}
		for _, k := range keys {
			if k.Check(time.Now()) == nil {
				live++
			}
			if k.LastUsedAt().After(seen) {
				seen = k.LastUsedAt()
			}
		}
		return a.printIndented(struct {
			directoryEntry
			LiveKeys int     `json:"live_keys"`
			LastSeen *string `json:"last_seen"`
		}{entryJSON(e), live, optionalTime(seen)})
	})
}

// printIndented prints JSON for people; with --json, on one line.
func (a *app) printIndented(v any) error {
	if a.json {
		return a.printJSON(v)
	}
	text, err := indented(v)
	if err == nil {
		_, err = a.stdout.Write(text)
	}
	return err
}

func indented(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(v)
	return b.Bytes(), err
}

func (a *app) mechaRemove() *cobra.Command {
	return a.onMecha(&cobra.Command{
		Use:   "remove ADDRESS",
		Short: "Take a Mecha out of the directory and end its keys",
		Long: `Take a Mecha out: its keys end at once, its profile goes, messages to it are
refused. Messages that it sent or received stay. If the address is registered
again, it is the same Mecha, with its history.`,
		Example: "  relay mecha remove planner^acme",
		Args:    exactly(1, "one address"),
	}, func(_ context.Context, d *db.DB, address relay.Address) error {
		if err := d.RemoveMecha(&relay.RemoveMecha{At: time.Now(), Address: address}); err != nil {
			return err
		}
		if a.json {
			return a.printJSON(map[string]relay.Address{"removed": address})
		}
		_, err := fmt.Fprintf(a.stdout, "%s is removed\n", address)
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
	onlyGroups(cmd)
	get := a.onMecha(&cobra.Command{
		Use:     "get ADDRESS",
		Short:   "Print a Mecha's profile, as set takes it",
		Example: "  relay mecha profile get planner^acme > profile.json",
		Args:    exactly(1, "one address"),
	}, func(ctx context.Context, d *db.DB, address relay.Address) error {
		e, err := d.Entry(ctx, address, "")
		if err != nil {
			return err
		}
		if a.json {
			return a.printJSON(e.Profile)
		}
		text, err := indented(e.Profile)
		if err != nil {
			return err
		}
		if _, err := relay.ReadProfile(text); err != nil { // its spaces make it too long to be set
			return a.printJSON(e.Profile)
		}
		_, err = a.stdout.Write(text)
		return err
	})
	var input []string
	set := a.onMecha(&cobra.Command{
		Use:   "set ADDRESS [FILE|-]",
		Short: "Replace a Mecha's profile with the JSON of a file, or of stdin",
		Example: `  relay mecha profile set planner^acme profile.json
  echo '{"description":"plans trips","tags":["travel"]}' | relay mecha profile set planner^acme`,
		Args:   between(1, 2, "an address, and a file or -"),
		PreRun: func(_ *cobra.Command, args []string) { input = args[1:] },
	}, func(_ context.Context, d *db.DB, address relay.Address) error {
		body, err := a.input(input)
		if err != nil {
			return err
		}
		p, err := relay.ReadProfile(body)
		if err != nil {
			return err
		}
		if err := d.PutProfile(&relay.PutProfile{At: time.Now(), Address: address, Profile: p}); err != nil {
			return err
		}
		if a.json {
			return a.printJSON(map[string]relay.Address{"updated": address})
		}
		_, err = fmt.Fprintf(a.stdout, "the profile of %s is set\n", address)
		return err
	})
	cmd.AddCommand(get, set)
	return cmd
}
