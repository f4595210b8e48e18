package console

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"relay/db/look/survey"
	"relay/db/relay"
)

const (
	shownHits       = 20
	shownFacets     = 12
	maxHits         = 2000 // as far as the pages of a search go
	shownHighlights = 3
	profileWords    = 8 // words that are looked for in the profiles of the file
)

// directoryPage is what pages/directory.html shows.
type directoryPage struct {
	Verdict
	Text     string
	As       string // the Mecha as which is searched; "": one that is of no crew
	Sort     string
	Sorts    []choice
	Index    bool // the index was searched; else the profiles of the file
	Asked    bool // there is a query or a filter
	Filters  []choice
	Facets   []facet
	Hits     []hit
	Took     string
	AsOf     string
	Ranking  string
	Changed  string // the query as it was corrected
	Asking   string // what an agent would type
	NotFound string // why nothing was searched
	pager
}

type facet struct {
	Name string
	List []choice
}

// hit is a Mecha that was found.
type hit struct {
	Rank        int
	Address     relay.Address
	Name        string
	Text        string
	Seen        string
	Here        bool
	Score       string
	Why         string
	Visibility  relay.Visibility
	Pieces      []pieces
	Words       []words
	Explanation *relay.Explanation
}

// pieces are a text with the places that match.
type pieces struct {
	Field string
	List  []piece
}

type piece struct {
	Text string
	Hit  bool
}

// the filters that a page's query can have, and the facet that each belongs to
var facets = []struct{ param, facet, name string }{{"crew", "crew", "Crew"}, {"tag", "tags", "Tags"},
	{"language", "languages", "Languages"}}

// showDirectory makes the page at /directory.
func (c *Console) showDirectory(r *http.Request) (any, error) {
	q := r.URL.Query()
	p := &directoryPage{Text: strings.TrimSpace(q.Get("q")), As: strings.TrimSpace(q.Get("as")),
		Index: c.config.Search != nil, Sort: q.Get("sort")}
	for _, f := range facets {
		if v := q.Get(f.param); v != "" {
			p.Filters = append(p.Filters, choice{Name: f.name + ": " + cut(v, wordLength),
				Link: linkWith(r, f.param, "", "page", "")})
		}
	}
	if q.Get("online") == "yes" {
		p.Filters = append(p.Filters, choice{Name: "online", Link: linkWith(r, "online", "", "page", "")})
	}
	p.Asked = p.Text != "" || len(p.Filters) > 0
	if p.Index && p.Asked {
		return p, c.searchIndex(r, p)
	}
	return p, c.listProfiles(r, p)
}

// searchIndex asks the index.
func (c *Console) searchIndex(r *http.Request, p *directoryPage) error {
	values := r.URL.Query()
	n, from := c.pageOf(r, shownHits)
	q := relay.SearchRequest{Query: p.Text, Sort: relay.SearchSort(p.Sort), Limit: shownHits, Offset: min(from, maxHits),
		Facets: []string{"crew", "tags", "languages"}, Highlight: true, Explain: true}
	for name, to := range map[string]*[]string{"crew": &q.Filter.Crew, "tag": &q.Filter.Tags,
		"language": &q.Filter.Languages} {
		if v := values.Get(name); v != "" {
			*to = []string{v}
		}
	}
	if c.config.Live != nil {
		q.Online = c.config.Live.Online
		if yes := true; values.Get("online") == "yes" {
			q.Filter.Online = &yes
		}
	}
	if p.As != "" {
		a, err := relay.ParseAddress(p.As)
		if err != nil {
			p.Verdict = Verdict{Text: "“Search as” takes the address of a Mecha, as in alice^demo.", Level: 1}
			return nil
		}
		q.Caller = a
	}
	known := map[relay.MechaNumber]survey.Listed{}
	q.Lookup = func(_ context.Context, ids []relay.MechaNumber) (all []relay.Entry, err error) {
		list, err := c.config.Store.Listed(ids)
		for _, l := range list {
			known[l.Number] = l
			all = append(all, l.Entry)
		}
		return all, err
	}
	found, err := c.config.Search(r.Context(), q)
	if code := relay.ErrorCode(err); code == relay.InvalidRequest || code == relay.Overloaded ||
		code == relay.RateLimited {
		p.Verdict = Verdict{Text: "The search was refused: " + refusal(err) + ".", Level: 1}
		return nil
	}
	if err != nil {
		return err
	}
	if len(found.Hits) > 0 && len(known) == 0 { // the index asks for profiles only if it highlights
		ids := make([]relay.MechaNumber, len(found.Hits))
		for i, h := range found.Hits {
			ids[i] = h.ID
		}
		if _, err := q.Lookup(r.Context(), ids); err != nil {
			return err
		}
	}
	for i, h := range found.Hits {
		if l, ok := known[h.ID]; ok { // else it was removed since
			p.Hits = append(p.Hits, c.hitOf(q.Offset+i+1, h, l))
		}
	}
	p.tell(r, found)
	p.pager = pagesOf(r, n, q.Offset+len(found.Hits) < found.Total && q.Offset+shownHits <= maxHits)
	return nil
}

func refusal(err error) string { return strings.TrimSuffix(err.Error(), ".") }

// tell says what the search found besides its hits.
func (p *directoryPage) tell(r *http.Request, found *relay.SearchResult) {
	p.Took, p.Ranking, p.Changed = fmt.Sprintf("%d ms", found.TookMS), found.RankingVersion, found.CorrectedQuery
	if found.AsOf != 0 {
		p.AsOf = relay.Position(found.AsOf).Time().Local().Format("2 Jan 15:04:05 MST")
	}
	switch {
	case found.Total == 0:
		p.Verdict = Verdict{Text: "No Mecha is found.", Level: 1}
	default:
		p.Verdict.Text = plural(found.Total, "Mecha") + map[bool]string{true: " is", false: " are"}[found.Total == 1] +
			" found."
	}
	if found.Partial {
		p.Verdict.Also = append(p.Verdict.Also, "The search ran out of its time: some may be missing.")
	}
	if p.Changed != "" {
		p.Verdict.Also = append(p.Verdict.Also, "Searched for: "+p.Changed+".")
	}
	for _, sort := range []string{"relevance", "recent", "name"} {
		p.Sorts = append(p.Sorts, choice{Name: sort, Link: linkWith(r, "sort", sort, "page", ""),
			Chosen: p.Sort == sort || p.Sort == "" && sort == "relevance"})
	}
	for _, f := range facets {
		of := facet{Name: f.name}
		for _, n := range found.Facets[f.facet] {
			if len(of.List) < shownFacets {
				chosen := r.URL.Query().Get(f.param) == n.Value
				value := n.Value
				if chosen {
					value = ""
				}
				of.List = append(of.List, choice{Name: cut(n.Value, wordLength), Link: linkWith(r, f.param, value, "page", ""),
					N: n.Count, Chosen: chosen})
			}
		}
		if len(of.List) > 0 {
			p.Facets = append(p.Facets, of)
		}
	}
}

// hitOf makes the row of a hit.
func (c *Console) hitOf(rank int, h relay.SearchHit, l survey.Listed) hit {
	row := c.listedOf(rank, l)
	row.Score, row.Explanation = fmt.Sprintf("%.3f", h.Score), h.Explanation
	if len(h.Matched.Terms) > 0 {
		row.Why = cut(strings.Join(h.Matched.Terms, " "), wordLength)
	}
	if len(h.Matched.Fields) > 0 {
		row.Why = strings.TrimSpace(row.Why + " in " + strings.Join(h.Matched.Fields, ", "))
	}
	if h.Matched.SkillID != "" {
		row.Why += ", skill " + cut(h.Matched.SkillID, wordLength)
	}
	for _, x := range h.Highlights[:min(len(h.Highlights), shownHighlights)] {
		row.Pieces = append(row.Pieces, pieces{x.Field, split(x)})
	}
	return row
}

// listedOf makes the row of a Mecha of the directory.
func (c *Console) listedOf(rank int, l survey.Listed) hit {
	row := hit{Rank: rank, Address: l.Address, Name: cut(l.DisplayName, wordLength), Text: cut(l.Description, textLength),
		Words: wordsOf(&l.Profile)}
	row.Words = row.Words[:min(1, len(row.Words))]
	if l.Visibility != relay.Public {
		row.Visibility = l.Visibility
	}
	row.Seen, row.Here = c.presence(l.Number, c.lastSeen(l.Number, l.LastSeen), c.config.Now())
	return row
}

// split cuts a highlight at the places that match.
func split(h relay.Highlight) (all []piece) {
	at := 0
	for _, s := range h.Spans {
		if s[0] < at || s[1] <= s[0] || s[1] > len(h.Text) {
			break
		}
		all = append(all, piece{Text: h.Text[at:s[0]]}, piece{Text: h.Text[s[0]:s[1]], Hit: true})
		at = s[1]
	}
	all = append(all, piece{Text: h.Text[at:]})
	for i := range all {
		all[i].Text = cut(all[i].Text, textLength)
	}
	return slices.DeleteFunc(all, func(p piece) bool { return p.Text == "" })
}

// listProfiles lists the profiles of the file.
func (c *Console) listProfiles(r *http.Request, p *directoryPage) error {
	words := strings.Fields(p.Text)
	q := survey.ProfileQuery{Words: words[:min(len(words), profileWords)],
		After: relay.Address(r.URL.Query().Get("after")), Limit: shownHits}
	found, err := c.config.Store.Profiles(r.Context(), q)
	if err != nil {
		return err
	}
	for _, l := range found.List {
		p.Hits = append(p.Hits, c.listedOf(0, l))
	}
	if found.Next != "" {
		p.After = linkWith(r, "after", string(found.Next))
	}
	if q.After != "" {
		p.Before = linkWith(r, "after", "")
	}
	if !p.Index {
		p.NotFound = "Only the server has the search index, which no second process may open: " +
			"relay serve --console searches by it. Here, the words are looked for in the profiles of the file, " +
			"without a ranking."
	}
	switch {
	case p.Text != "" && len(p.Hits) == 0:
		p.Verdict = Verdict{Text: "No profile has all these words.", Level: 1}
	case p.Text != "":
		p.Verdict.Text = "These profiles have all the words."
	case len(p.Hits) == 0 && q.After == "":
		p.Verdict.Text = "No Mecha is registered."
	default:
		p.Verdict.Text = "All Mechas, by address."
	}
	return nil
}
