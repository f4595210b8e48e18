package search_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"relay/db/relay"
	"relay/db/scratch"
	"relay/search"
)

// No text is too odd to be searched, and none so that the search does not end
// within its budget, which is generous here.
func TestOddQueries(t *testing.T) {
	t.Parallel()
	g := newGenerator(t, 11)
	entries := g.entries(amount(t, 300, 3000))
	odd := mecha(90_001, "odd^acme", "🚀 quockers \x00 with zero bytes \xff\xfe and שלום עולם مرحبا بالعالم 天気予報 ไทย")
	odd.DisplayName = "🚀🚀"
	odd.Details = strings.Repeat("x", 16_000)
	odd.Examples = []string{strings.Repeat("ab ", 100)}
	for i := range 100 {
		odd.Skills = append(odd.Skills, relay.Skill{ID: fmt.Sprint(i), Name: strings.Repeat("W", 60), Description: strings.Repeat("aB", 200)})
	}
	x := mustIndex(t, append(entries, odd), 1000)
	many := make([]string, 300)
	for i := range many {
		many[i] = g.word()
	}
	long := strings.Join(many, " ")
	for name, query := range map[string]string{
		"NUL":               "\x00",
		"NUL inside":        "a\x00b flight\x00",
		"invalid UTF-8":     "\xff\xfe\xfd quockers",
		"emoji":             "🚀",
		"emojis":            strings.Repeat("👩‍👩‍👧‍👦", 280),
		"right to left":     "שלום עולم",
		"CJK":               strings.Repeat("天気予報", 500),
		"one CJK":           "天",
		"Thai":              "ไทย",
		"one letter":        "a",
		"identical":         strings.Repeat("a", 2000),
		"identical words":   strings.Repeat("a ", 1000),
		"humps":             strings.Repeat("aB", 1000),
		"capitals":          strings.Repeat("A", 2000),
		"combining":         "a" + strings.Repeat("\u0301", 1999),
		"wildcard":          "*",
		"wildcards":         "a* ?b *c* **",
		"regular":           "/(a|aa)+$/",
		"query string":      `+title:"x y"~2^5 -body:[a TO z] AND NOT (b OR c)`,
		"JSON":              `{"query":{"match_all":{}}}`,
		"SQL":               `'; DROP TABLE profile; --`,
		"HTML":              `<script>alert(1)</script>`,
		"slashes":           strings.Repeat("/", 2000),
		"carets":            strings.Repeat("^", 2000),
		"address of spaces": "a b^c d",
		"many words":        clipQuery(long),
		"many sentences":    clipQuery(strings.ReplaceAll(long, " ", ". ")),
		"unknown words":     clipQuery(strings.Repeat("qxzj vkwq ", 200)),
		"misspelled":        clipQuery(strings.ReplaceAll(long, "e", "ee")),
		"bidi controls":     "\u202e\u2066abc\u2069",
		"full width":        "ＱＵＯＣＫＥＲＳ",
		"sharp s":           "ẞß STRASSE",
		"Turkish":           "İıIi",
	} {
		t.Run(name, func(t *testing.T) {
			r := mustSearch(t, x, search.Request{Query: query, Explain: true, Facets: []string{"crew", "tags", "languages"},
				Highlight: true, Lookup: newShelf(odd).lookup})
			if r.Partial {
				t.Errorf("takes more than %v", patience)
			}
			if r.Total < len(r.Hits) {
				t.Errorf("total %d, hits %d", r.Total, len(r.Hits))
			}
			if _, err := x.Search(context.Background(), search.Request{Query: query, Sort: search.ByRecent, Offset: len(entries) - 10}); err != nil {
				t.Error(err)
			}
		})
	}
	for _, q := range []string{"🚀🚀", "quockers", "ＱＵＯＣＫＥＲＳ", "שלום", "天気", "天", "ไทย"} {
		if r := mustSearch(t, x, search.Request{Query: q}); len(r.Hits) == 0 || string(r.Hits[0].Address) != "odd^acme" {
			t.Errorf("%q finds %v", q, addresses(r))
		}
	}
	for name, f := range map[string]search.Filter{
		"odd values": {Tags: []string{"\x00", "\xff", strings.Repeat("/", 5000), ""}, Crew: []string{"*", "\xff"}},
		"excluded":   {Exclude: []string{"", "^", "\x00"}},
	} {
		if _, err := x.Search(context.Background(), search.Request{Query: "quockers", Filter: f}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Past the cap searches wait a little and are then refused; those that run are bounded.
func TestBusy(t *testing.T) {
	t.Parallel()
	x, err := search.Open(scratch.Dir(t), search.Options{Concurrency: 1, Wait: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	s := newShelf(travel()...)
	done := make(chan struct{})
	go func() { defer close(done); x.Follow(context.Background(), s) }()
	waitFor(t, x, s.last)
	const searches = 6
	var busy, fine atomic.Int64
	refused := make(chan struct{}) // closed when all but one have been
	hold := func(relay.MechaNumber) bool {
		select {
		case <-refused:
		case <-time.After(patience):
			t.Error("the others are not refused")
		}
		return true
	}
	var all sync.WaitGroup
	for i := range searches {
		all.Go(func() {
			caller := relay.Address(fmt.Sprintf("caller%d^acme", i))
			_, err := x.Search(context.Background(), search.Request{Query: "flights", Online: hold, Caller: caller})
			switch {
			case errors.Is(err, search.ErrBusy):
				if busy.Add(1) == searches-1 {
					close(refused)
				}
			case err == nil:
				fine.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	all.Wait()
	if busy.Load() != searches-1 || fine.Load() != 1 {
		t.Errorf("%d busy, %d fine", busy.Load(), fine.Load())
	}
	x.Close()
	<-done
}

// A search that runs out of its time answers with what it has.
func TestBudget(t *testing.T) {
	x, err := search.Open(scratch.Dir(t), search.Options{Budget: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	s := newShelf(travel()...)
	done := make(chan struct{})
	go func() { defer close(done); x.Follow(context.Background(), s) }()
	waitFor(t, x, s.last)
	r := mustSearch(t, x, search.Request{Query: "flights and hotel rooms", Facets: []string{"tags"}})
	if !r.Partial {
		t.Errorf("not partial: %+v", r)
	}
	x.Close()
	<-done
}
