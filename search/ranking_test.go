package search_test

import (
	"fmt"
	"strings"
	"testing"

	"relay/db/relay"
	"relay/search"
)

// crowd is a generated directory with some Mechas of known names in it.
func crowd(t testing.TB, known ...relay.Entry) []relay.Entry {
	g := newGenerator(t, 7)
	entries := g.entries(amount(t, 400, 800))
	for i, e := range known {
		e.Number = relay.MechaNumber(100_000 + i)
		entries = append(entries, e)
	}
	return entries
}

func TestExactNameIsFirst(t *testing.T) {
	t.Parallel()
	g := newGenerator(t, 7)
	entries := g.entries(amount(t, 400, 800))
	// Others that say the name more often, and longer and shorter names.
	entries = append(entries,
		mecha(9001, "oracle^acme", ""),
		mecha(9002, "oracle-oracle^acme", strings.Repeat("oracle ", 200)),
		mecha(9003, "theoracle^acme", "oracle oracle oracle"),
		mecha(9004, "oracl^acme", "an oracle that answers as an oracle"))
	x := mustIndex(t, entries, 1000)
	for _, q := range []string{"oracle", "Oracle", " ORACLE ", "oracle^acme"} {
		r := mustSearch(t, x, search.Request{Query: q})
		if string(r.Hits[0].Address) != "oracle^acme" {
			t.Errorf("%q finds %v", q, addresses(r))
		}
	}
	for i := 0; i < len(entries)-4; i += 9 {
		name, _, _ := strings.Cut(string(entries[i].Address), "^")
		for _, q := range []string{name, strings.ReplaceAll(name, "-", " "), string(entries[i].Address)} {
			r := mustSearch(t, x, search.Request{Query: q})
			if len(r.Hits) == 0 || r.Hits[0].Address != entries[i].Address {
				t.Errorf("%q finds %v", q, addresses(r))
			}
		}
	}
}

// Every way to get one letter wrong in a name keeps its Mecha in the first three.
func TestOneTypoInAName(t *testing.T) {
	t.Parallel()
	names := []string{"oracle", "plumber", "skyfinder", "getHotelRooms", "tax-adviser", "quill"}
	var known []relay.Entry
	for _, n := range names {
		known = append(known, mecha(0, n+"^acme", "does its work"))
	}
	x := mustIndex(t, crowd(t, known...), 1000)
	for _, name := range names {
		for i := range name {
			if name[i] == '-' {
				continue
			}
			typos := []string{name[:i] + name[i+1:], name[:i] + "x" + name[i+1:], name[:i] + "x" + name[i:]}
			if i+1 < len(name) && name[i+1] != '-' {
				typos = append(typos, name[:i]+string(name[i+1])+string(name[i])+name[i+2:])
			}
			for _, q := range typos {
				r := mustSearch(t, x, search.Request{Query: q})
				rank := 0
				for k, h := range r.Hits {
					if string(h.Address) == name+"^acme" {
						rank = k + 1
					}
				}
				if rank < 1 || rank > 3 {
					t.Errorf("%q finds %s at %d: %v", q, name, rank, addresses(r))
				}
			}
		}
	}
}

func TestPrefixFindsAName(t *testing.T) {
	t.Parallel()
	x := mustIndex(t, crowd(t, mecha(0, "getHotelRooms^acme", ""), mecha(0, "philatelist^acme", "")), 1000)
	for q, want := range map[string]string{"gethotelr": "getHotelRooms^acme", "get hotel ro": "getHotelRooms^acme", "philat": "philatelist^acme"} {
		r := mustSearch(t, x, search.Request{Query: q})
		if len(r.Hits) == 0 || string(r.Hits[0].Address) != want {
			t.Errorf("%q finds %v", q, addresses(r))
		}
	}
}

// A profile with a word 500 times does not beat one whose skill it is.
func TestRepetitionDoesNotPay(t *testing.T) {
	t.Parallel()
	skilled := mecha(0, "sam^acme", "A helper in the kitchen.")
	skilled.Skills = []relay.Skill{{ID: "sour", Name: "Sourdough baking", Description: "Bakes bread with sourdough"}}
	spam := func(i int, e relay.Entry) relay.Entry {
		e.Address = relay.Address(fmt.Sprintf("spam%d^acme", i))
		return e
	}
	word := strings.TrimSpace(strings.Repeat("sourdough ", 500))
	description := spam(1, mecha(0, "", strings.TrimSpace(strings.Repeat("sourdough ", 190))))
	details := spam(2, mecha(0, "", "buys and sells"))
	details.Details = word
	examples := spam(3, mecha(0, "", "buys and sells"))
	examples.Examples = []string{word}
	tags := spam(4, mecha(0, "", "buys and sells"))
	for i := range 60 {
		tags.Tags = append(tags.Tags, fmt.Sprintf("sourdough/%d", i))
	}
	mixed := spam(5, mecha(0, "", strings.Repeat("sourdough baking ", 250)))
	x := mustIndex(t, crowd(t, skilled, description, details, examples, tags, mixed), 1000)
	for _, q := range []string{"sourdough baking", "who can do sourdough baking for me?", "sourdough", "bake a bread with sourdough"} {
		r := mustSearch(t, x, search.Request{Query: q, Explain: true})
		if string(r.Hits[0].Address) != "sam^acme" {
			t.Errorf("%q finds %v", q, addresses(r))
			for _, h := range r.Hits[:2] {
				t.Logf("%s %+v", h.Address, h.Explanation)
			}
		}
	}
}

// Presence decides between equals; it does not lift the weak over the strong.
func TestPresenceOnlyNudges(t *testing.T) {
	t.Parallel()
	strong := mecha(0, "strong^acme", "Repairs violins and cellos.")
	weak := mecha(0, "weak^acme", "Sells tickets for concerts, now and then of violins, and much else besides that.")
	twinA, twinB := mecha(0, "twin-k^acme", "Tunes harpsichords."), mecha(0, "twin-l^acme", "Tunes harpsichords.")
	entries := crowd(t, strong, weak, twinA, twinB)
	x := mustIndex(t, entries, 1000)
	n := len(entries)
	is := func(i int) func(relay.MechaNumber) bool {
		return func(id relay.MechaNumber) bool { return id == entries[i].Number }
	}
	r := mustSearch(t, x, search.Request{Query: "repair violins", Online: is(n - 3)})
	if string(r.Hits[0].Address) != "strong^acme" {
		t.Errorf("the weak one online: %v", addresses(r))
	}
	r = mustSearch(t, x, search.Request{Query: "tune harpsichords", Online: is(n - 1)})
	if got := addresses(r); got[0] != "twin-l^acme" || got[1] != "twin-k^acme" {
		t.Errorf("one of equals online: %v", got)
	}
	if lift := r.Hits[0].Score / r.Hits[1].Score; lift > 1.05 {
		t.Errorf("presence lifts by %.3f", lift)
	}
	r = mustSearch(t, x, search.Request{Query: "tune harpsichords"})
	if got := addresses(r); got[0] != "twin-k^acme" || r.Hits[0].Score != r.Hits[1].Score {
		t.Errorf("equal ones: %v", got)
	}
}
