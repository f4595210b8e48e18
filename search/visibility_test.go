package search_test

import (
	"testing"

	"relay/db/relay"
	"relay/search"
)

// secrets has one Mecha of each visibility, with words of their own.
func secrets() []relay.Entry {
	open := mecha(1, "open^acme", "quokka counting")
	inside := mecha(2, "inside^acme", "quokka counting, xylophone tuning")
	inside.Visibility, inside.Tags = relay.CrewOnly, []string{"secret"}
	unlisted := mecha(3, "Hidden.One^acme", "quokka counting, zeppelin repair")
	unlisted.Visibility, unlisted.Tags = relay.Unlisted, []string{"secret"}
	return []relay.Entry{open, inside, unlisted}
}

func TestVisibility(t *testing.T) {
	t.Parallel()
	x := mustIndex(t, secrets(), 10)
	for name, c := range map[string]struct {
		query  string
		caller relay.Address
		want   []string
	}{
		"a stranger":                          {"quokka", "me^other", []string{"open^acme"}},
		"nobody in particular":                {"quokka", "", []string{"open^acme"}},
		"one of the crew":                     {"quokka", "me^acme", []string{"open^acme", "inside^acme"}},
		"crew names differ by case":           {"quokka", "me^Acme", []string{"open^acme"}},
		"a word of a crew-only profile":       {"xylophone", "me^other", nil},
		"a word of an unlisted profile":       {"zeppelin", "me^acme", nil},
		"the name of an unlisted one":         {"hidden one", "me^acme", nil},
		"the address of a crew-only one":      {"inside^acme", "me^other", []string{"open^acme"}},
		"the same, inside":                    {"inside^acme", "me^acme", []string{"inside^acme", "open^acme"}},
		"the address of an unlisted one":      {"Hidden.One^acme", "me^other", []string{"Hidden.One^acme", "open^acme"}},
		"the same, written differently":       {"hidden.one^acme", "me^other", []string{"open^acme"}},
		"the caller is left out":              {"quokka", "open^acme", []string{"inside^acme"}},
		"the caller asks for itself":          {"open^acme", "open^acme", []string{"open^acme", "inside^acme"}},
		"an unlisted caller asks for itself":  {"Hidden.One^acme", "Hidden.One^acme", []string{"Hidden.One^acme", "open^acme", "inside^acme"}},
		"an unlisted caller does not find it": {"zeppelin", "Hidden.One^acme", nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := mustSearch(t, x, search.Request{Query: c.query, Caller: c.caller, Facets: []string{"tags", "crew"}})
			wantSet(t, r, c.want)
			if r.Total != len(c.want) {
				t.Errorf("total %d, want %d", r.Total, len(c.want))
			}
			secret := 0
			for _, a := range c.want {
				if a != "open^acme" {
					secret++
				}
			}
			if n := len(r.Facets["tags"]); (n > 0) != (secret > 0) || n > 0 && r.Facets["tags"][0].Count != secret {
				t.Errorf("facets %v", r.Facets)
			}
		})
	}
}

// A correction must not tell words of profiles that the caller may not see.
func TestCorrectionsKeepSecrets(t *testing.T) {
	x := mustIndex(t, secrets(), 10)
	for _, query := range []string{"xylophne", "zeppelim"} {
		if r := mustSearch(t, x, search.Request{Query: query, Caller: "me^other"}); r.CorrectedQuery != "" || r.Total != 0 {
			t.Errorf("%q tells %q", query, r.CorrectedQuery)
		}
	}
	if r := mustSearch(t, x, search.Request{Query: "xylophne", Caller: "me^acme"}); r.CorrectedQuery != "xylophone" {
		t.Errorf("inside: %q", r.CorrectedQuery)
	}
	if r := mustSearch(t, x, search.Request{Filter: search.Filter{Tags: []string{"secret"}}, Caller: "me^other"}); r.Total != 0 {
		t.Errorf("a filter finds %v", addresses(r))
	}
}

// wantSet compares without regard to order, except that an exact address is first.
func wantSet(t *testing.T, r *search.Result, want []string) {
	t.Helper()
	got := addresses(r)
	ok := len(got) == len(want)
	for _, a := range want {
		found := false
		for _, b := range got {
			found = found || a == b
		}
		ok = ok && found
	}
	if !ok {
		t.Errorf("found %v, want %v", got, want)
	}
}
