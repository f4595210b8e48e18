package cmd

import (
	"encoding/json"
	"fmt"
	nethttp "net/http"
	"strings"

	"github.com/spf13/cobra"

	"relay/db/relay"
)

// searchFlags are the arguments and flags of search, as the API takes them.
type searchFlags struct {
	Query  string       `json:"query"`
	Filter searchFilter `json:"filter"`
	Sort   string       `json:"sort"`
	Limit  int          `json:"limit"`
}

type searchFilter struct {
	Tags      []string `json:"tags,omitempty"`
	Crew      []string `json:"crew,omitempty"`
	Skills    []string `json:"skills,omitempty"`
	Languages []string `json:"languages,omitempty"`
	Online    *bool    `json:"online,omitempty"`
}

func (a *app) searchCommand() *cobra.Command {
	var c clientFlags
	var q searchFlags
	var online bool
	cmd := &cobra.Command{
		Use:   "search [QUERY…]",
		Short: "Find the Mecha that can do something",
		Long: `Find Mechas by what they can do, in plain words, as the Mecha of RELAY_KEY. An
exact address or name comes first, then an exact skill. Without a query, search
finds every Mecha that the filters allow.`,
		Example: `  relay search book a flight to lisbon
  relay search --tag travel invoices --json
  relay search --skill book --online --sort recent`,
		Args: between(0, 1000, "words to search for"),
		RunE: func(cmd *cobra.Command, args []string) error {
			q.Query = strings.TrimSpace(strings.Join(args, " "))
			if cmd.Flags().Changed("online") {
				q.Filter.Online = &online
			}
			if err := q.check(); err != nil {
				return err
			}
			relay, err := c.client()
			if err != nil {
				return err
			}
			body, err := json.Marshal(q)
			if err != nil {
				return err
			}
			resp, err := relay.Do(cmd.Context(), "POST", "/api/v1/search", body, nethttp.Header{"Prefer": {"wait=10"}})
			if err != nil {
				return err
			}
			if err := resp.Err(); err != nil {
				return err
			}
			return a.printFound(resp.Body)
		},
	}
	c.add(cmd)
	f := cmd.Flags()
	f.IntVar(&q.Limit, "limit", 10, "how many Mechas at most, up to 100")
	f.StringVar(&q.Sort, "sort", "relevance", "the `order`: relevance, recent (last changed first) or name")
	f.StringSliceVar(&q.Filter.Tags, "tag", nil, "only Mechas with this `tag` or a child of it; if given several times, with any of them")
	f.StringSliceVar(&q.Filter.Crew, "crew", nil, "only Mechas of this `crew`; if given several times, of any of them")
	f.StringSliceVar(&q.Filter.Skills, "skill", nil, "only Mechas with this `skill`, by its id or name; if given several times, with any of them")
	f.StringSliceVar(&q.Filter.Languages, "language", nil, "only Mechas with this `language`; if given several times, with any of them")
	f.BoolVar(&online, "online", false, "only Mechas that are online; --online=false: only those that are not")
	return cmd
}

// check refuses what would be refused without a look into the index.
func (q *searchFlags) check() error {
	f := &q.Filter
	if q.Query == "" && len(f.Tags)+len(f.Crew)+len(f.Skills)+len(f.Languages) == 0 && f.Online == nil {
		return usagef("search takes a query, or a filter: --tag, --crew, --skill, --language, --online")
	}
	if q.Sort != "relevance" && q.Sort != "recent" && q.Sort != "name" {
		return usagef("--sort must be relevance, recent or name; %q is none of them", q.Sort)
	}
	return nil
}

// found is the part of a search's answer that is printed.
type found struct {
	Total     int
	Corrected string `json:"corrected_query"`
	Results   []struct {
		MechaID     string `json:"mecha_id"`
		DisplayName string `json:"display_name"`
		Description string
		Score       float64
		Online      bool
		Matched     struct {
			SkillID       string `json:"skill_id"`
			Fields, Terms []string
		}
	}
}

func (a *app) printFound(answer []byte) error {
	if a.json {
		return a.printJSON(json.RawMessage(answer))
	}
	var f found
	if err := json.Unmarshal(answer, &f); err != nil {
		return err
	}
	if f.Corrected != "" {
		fmt.Fprintf(a.stderr, "searched for: %s\n", relay.Visible(f.Corrected))
	}
	if len(f.Results) == 0 {
		_, err := fmt.Fprintln(a.stderr, "nothing found")
		return err
	}
	w := a.tableOf("SCORE", "MECHA", "ONLINE", "WHAT", "WHY")
	for _, r := range f.Results {
		online := "-"
		if r.Online {
			online = "yes"
		}
		why := strings.Join(r.Matched.Terms, " ") // none if its name is similar, or if there is only a filter
		if len(r.Matched.Fields) > 0 {
			why = strings.TrimSpace(why + " in " + strings.Join(r.Matched.Fields, ", "))
		}
		if r.Matched.SkillID != "" {
			why += " (skill " + r.Matched.SkillID + ")"
		}
		what := r.DisplayName
		if r.Description != "" {
			what = strings.TrimLeft(what+": "+r.Description, ": ")
		}
		w.row(fmt.Sprintf("%.3f", r.Score), r.MechaID, online, oneLine(what, 60), dash(oneLine(why, 120)))
	}
	if more := f.Total - len(f.Results); more > 0 {
		defer fmt.Fprintf(a.stderr, "… and %d more (--limit)\n", more)
	}
	return w.end()
}

// oneLine cuts a text to n characters on one line, for a table.
func oneLine(s string, n int) string {
	r := []rune(strings.Join(strings.Fields(s), " "))
	if len(r) > n {
		r = append(r[:n-1], '…')
	}
	return string(r)
}
