package search_test

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"relay/db/relay"
	"relay/search"
)

// Any words may be asked, and a profile may have changed since it was indexed:
// the answer is in order, the same each time, and marks parts of the text that
// is there.
func FuzzQuery(f *testing.F) {
	shelf := newShelf(mecha(1, "flights^acme", "books flights and seats, Straße nach Köln"), mecha(2, "hotels^acme", "finds hotel rooms for flights that are late"), mecha(3, "quokka^zoo", "counts quokkas 数えます"))
	x := mustFollow(f, f.TempDir(), shelf)
	waitFor(f, x, shelf.last)
	for _, seed := range [][2]string{
		{"", ""}, {" \u00a0", ""}, {"!", ""}, {"flights", "books flights"}, {"book a flight to köln", "KÖLN köln Ko\u0308ln"}, {"strasse", "Straße STRASSE"}, {"quoka fligts", "\u0130stanbul ﬂights ǅ"},
		{"数え", "数えます"}, {"flights^acme", "x"}, {"\x00\xff", "\xff\xfeflights"}, {"+flights -rooms *:* \"late\"~2", "late, late; late"}, {"fl", "flights\u200dfl"}, {"\u202eflights", "\u1e9e\u0149\u0345"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, query, text string) {
		if !utf8.ValidString(query) || len([]rune(query)) > 2000 || !utf8.ValidString(text) {
			t.Skip() // the route lets no such query in, nor the directory such a text
		}
		r := search.Request{Query: query, Caller: "me^other", Highlight: true, Explain: true, Facets: []string{"crew"}, Lookup: func(ctx context.Context, ids []relay.MechaNumber) ([]relay.Entry, error) {
			list, err := shelf.lookup(ctx, ids)
			for i := range list {
				list[i].Description = text
			}
			return list, err
		}}
		if strings.TrimSpace(query) == "" {
			r.Filter.Crew = []string{"acme"}
		}
		got := mustSearch(t, x, r)
		if got.Total < len(got.Hits) {
			t.Fatalf("%q: %d hits of %d", query, len(got.Hits), got.Total)
		}
		for i, h := range got.Hits {
			if h.Score < 0 || h.Score > 1 || i > 0 && (h.Score > got.Hits[i-1].Score || h.Score == got.Hits[i-1].Score && h.Address <= got.Hits[i-1].Address) {
				t.Fatalf("%q: place %d of %+v", query, i, got.Hits)
			}
			for _, l := range h.Highlights {
				end := 0
				for _, s := range l.Spans {
					if s[0] < end || s[1] <= s[0] || s[1] > len(l.Text) || !utf8.ValidString(l.Text[:s[0]]) || !utf8.ValidString(l.Text[s[0]:s[1]]) {
						t.Fatalf("%q: %v in %q", query, l.Spans, l.Text)
					}
					end = s[1]
				}
			}
		}
		again := mustSearch(t, x, r)
		again.TookMS = got.TookMS
		if !reflect.DeepEqual(got, again) {
			t.Fatalf("%q: %+v, then %+v", query, got, again)
		}
	})
}
