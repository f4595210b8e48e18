package agent

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"relay/cmd/internal/cli"
	"relay/cmd/internal/remote"
	"relay/cmd/internal/show"
	"relay/db/relay"
	"relay/http/client"
)

func (a *app) searchCommand() *cobra.Command {
	var c remote.Flags
	var query string
	var q client.FindOptions
	var online bool
	cmd := &cobra.Command{
		Use:   "search [QUERY…]",
		Short: "Find the Mecha that can do something",
		Long: `Find Mechas by their abilities, in plain words, as the Mecha of RELAY_KEY. An
exact address or name comes first, then an exact skill. Without a query, search
finds every Mecha that passes the filters. Put -- before a query that begins
with the word forget.`,
		Example: `  relay search book a flight to lisbon
  relay search --tag travel invoices --json
  relay search --skill book --online --sort recent`,
		Args: cli.Between(0, 1000, "words to search for"),
		RunE: func(cmd *cobra.Command, args []string) error {
			query = strings.TrimSpace(strings.Join(args, " "))
			if cmd.Flags().Changed("online") {
				q.Filter.Online = &online
			}
			if err := checkSearch(query, q); err != nil {
				return err
			}
			api, err := c.Client()
			if err != nil {
				return err
			}
			found, err := api.Find(cmd.Context(), query, q)
			if err != nil {
				return err
			}
			return a.printFound(found)
		},
	}
	c.Add(cmd)
	f := cmd.Flags()
	f.IntVar(&q.Limit, "limit", 10, "maximum number of Mechas, up to 100")
	f.StringVar(&q.Sort, "sort", "relevance", "the `order`: relevance, recent (last changed first) or name")
	f.StringSliceVar(&q.Filter.Tags, "tag", nil,
		"only Mechas with this `tag` or a child of it; if given several times, with any of them")
	f.StringSliceVar(&q.Filter.Crew, "crew", nil, "only Mechas of this `crew`; if given several times, of any of them")
	f.StringSliceVar(&q.Filter.Skills, "skill", nil,
		"only Mechas with this `skill`, by its id or name; if given several times, with any of them")
	f.StringSliceVar(&q.Filter.Languages, "language", nil,
		"only Mechas with this `language`; if given several times, with any of them")
	f.BoolVar(&online, "online", false, "only Mechas that are online; --online=false: only those that are not")
	return cmd
}

// checkSearch refuses a search that the relay would refuse without reading the index.
func checkSearch(query string, q client.FindOptions) error {
	f := &q.Filter
	if query == "" && len(f.Tags)+len(f.Crew)+len(f.Skills)+len(f.Languages) == 0 && f.Online == nil {
		return cli.Usagef("search takes a query, or a filter: --tag, --crew, --skill, --language, --online")
	}
	if q.Sort != "relevance" && q.Sort != "recent" && q.Sort != "name" {
		return cli.Usagef("--sort must be relevance, recent or name, not %q", q.Sort)
	}
	if q.Limit < 1 {
		return cli.Usagef("--limit must be at least 1")
	}
	return nil
}

func (a *app) printFound(f *client.Found) error {
	if a.JSON {
		return a.PrintJSON(f.JSON)
	}
	if f.Corrected != "" {
		fmt.Fprintf(a.Stderr, "searched for: %s\n", relay.Visible(f.Corrected))
	}
	if len(f.Agents) == 0 {
		_, err := fmt.Fprintln(a.Stderr, "nothing found")
		return err
	}
	w := show.NewTable(a.Stdout, "SCORE", "MECHA", "ONLINE", "WHAT", "WHY")
	for _, r := range f.Agents {
		online := "-"
		if r.Online {
			online = "yes"
		}
		why := strings.Join(r.Why.Terms, " ") // none if its name is similar, or if there is only a filter
		if len(r.Why.Fields) > 0 {
			why = strings.TrimSpace(why + " in " + strings.Join(r.Why.Fields, ", "))
		}
		if r.Why.SkillID != "" {
			why += " (skill " + r.Why.SkillID + ")"
		}
		what := r.DisplayName
		if r.Description != "" {
			what = strings.TrimLeft(what+": "+r.Description, ": ")
		}
		w.Row(fmt.Sprintf("%.3f", r.Score), r.Address, online, oneLine(what, 60), show.Dash(oneLine(why, 120)))
	}
	if more := f.Total - len(f.Agents); more > 0 {
		defer fmt.Fprintf(a.Stderr, "… and %d more (--limit)\n", more)
	}
	return w.End()
}

// oneLine cuts a text to n characters on one line, for a table.
func oneLine(s string, n int) string {
	r := []rune(strings.Join(strings.Fields(s), " "))
	if len(r) > n {
		r = append(r[:n-1], '…')
	}
	return string(r)
}
