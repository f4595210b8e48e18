package search_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"relay/db/relay"
	"relay/db/scratch"
	"relay/search"
)

// travel is a small directory that most tests search.
func travel() []relay.Entry {
	flights := mecha(1, "skyfinder^acme", "Books and compares flights between any two airports.")
	flights.DisplayName = "Sky Finder"
	flights.Tags = []string{"travel/flights"}
	flights.Languages = []string{"en", "de"}
	flights.Skills = []relay.Skill{
		{ID: "flight-booking", Name: "Flight booking", Description: "Finds and books flights", Examples: []string{"Book me a flight from Berlin to Madrid"}},
		{ID: "seat-map", Name: "Seat map", Description: "Shows free seats", MessageTypes: []string{"seat.query"}},
	}
	hotels := mecha(2, "getHotelRooms^acme", "Finds hotel rooms and their prices.")
	hotels.Tags = []string{"travel/hotels"}
	hotels.Languages = []string{"en"}
	hotels.MessageTypes = []string{"room.query"}
	translate := mecha(3, "translator^lingua", "Translates documents between languages.")
	translate.Tags = []string{"language"}
	translate.Skills = []relay.Skill{{ID: "doc", Name: "Translate document", Tags: []string{"office/documents"}}}
	weather := mecha(4, "weather-oracle^meteo", "Tells the weather of tomorrow for any city. 天气预报 for Chinese cities.")
	bare := relay.Entry{}
	bare.Number, bare.Address = 5, "planner^acme"
	return []relay.Entry{flights, hotels, translate, weather, bare}
}

func TestSearchFinds(t *testing.T) {
	t.Parallel()
	x := mustIndex(t, travel(), 2)
	for query, first := range map[string]string{
		"book a flight to Madrid":            "skyfinder^acme",
		"flights":                            "skyfinder^acme",
		"hotel room":                         "getHotelRooms^acme",
		"translate this document for me":     "translator^lingua",
		"will it rain, how is the weather":   "weather-oracle^meteo",
		"天气":                                 "weather-oracle^meteo",
		"planner":                            "planner^acme", // no profile
		"planner^acme":                       "planner^acme",
		"PLANNER^ACME":                       "planner^acme",
		"Sky Finder":                         "skyfinder^acme",
		"skyfinder":                          "skyfinder^acme",
		"skyfindr":                           "skyfinder^acme", // a letter less
		"skyfindrr":                          "skyfinder^acme", // another letter
		"syk finder":                         "skyfinder^acme", // two exchanged
		"sky fin":                            "skyfinder^acme", // a prefix
		"get hotel rooms":                    "getHotelRooms^acme",
		"get_hotel-rooms":                    "getHotelRooms^acme",
		"gethotelrooms":                      "getHotelRooms^acme",
		"gethotelrums":                       "getHotelRooms^acme",
		"transl":                             "translator^lingua",
		"oracle":                             "weather-oracle^meteo",
		"free seats":                         "skyfinder^acme",
		"I need a trip. Please book flights": "skyfinder^acme",
	} {
		r := mustSearch(t, x, search.Request{Query: query})
		if len(r.Hits) == 0 || string(r.Hits[0].Address) != first {
			t.Errorf("%q finds %v, want %s first", query, addresses(r), first)
		}
		if r.Total < len(r.Hits) || r.AsOf != 5 || r.RankingVersion != search.RankingVersion {
			t.Errorf("%q: total %d, as of %d, ranking %q", query, r.Total, r.AsOf, r.RankingVersion)
		}
		for _, h := range r.Hits {
			if h.Score <= 0 || h.Score > 1 {
				t.Errorf("%q: %s has score %v", query, h.Address, h.Score)
			}
		}
	}
	if r := mustSearch(t, x, search.Request{Query: "zymurgy"}); r.Total != 0 || len(r.Hits) != 0 {
		t.Errorf("a word nobody uses finds %v", addresses(r))
	}
}

func TestMatchedSaysWhy(t *testing.T) {
	t.Parallel()
	x := mustIndex(t, travel(), 10)
	h := mustSearch(t, x, search.Request{Query: "please book a flight", Explain: true}).Hits[0]
	if h.Matched.SkillID != "flight-booking" {
		t.Errorf("skill %q", h.Matched.SkillID)
	}
	if !slices.Equal(h.Matched.Terms, []string{"book", "flight"}) {
		t.Errorf("terms %v", h.Matched.Terms)
	}
	if !slices.Contains(h.Matched.Fields, "skills.name") || !slices.Contains(h.Matched.Fields, "description") {
		t.Errorf("fields %v", h.Matched.Fields)
	}
	if h.Explanation == nil || len(h.Explanation.Words) == 0 || h.Explanation.Raw == 0 {
		t.Errorf("explanation %+v", h.Explanation)
	}
}

func TestCorrectedQuery(t *testing.T) {
	x := mustIndex(t, travel(), 10)
	for query, want := range map[string]string{
		"hotel romos now":       "hotel rooms now",
		"Compares FLIGTHS here": "Compares flights here",
		"hotel rooms":           "",
		"hotl":                  "hotel",
		"htl":                   "", // too short to be forgiven
		"tell me":               "", // words of asking are right
		"transl":                "", // a beginning is not a mistake
	} {
		if r := mustSearch(t, x, search.Request{Query: query}); r.CorrectedQuery != want {
			t.Errorf("%q is corrected to %q, want %q", query, r.CorrectedQuery, want)
		}
	}
}

func TestFilters(t *testing.T) {
	t.Parallel()
	x := mustIndex(t, travel(), 10)
	yes, no := true, false
	online := func(id relay.MechaNumber) bool { return id == 2 || id == 5 }
	for name, c := range map[string]struct {
		filter search.Filter
		want   []string
	}{
		"crew":              {search.Filter{Crew: []string{"acme"}}, []string{"getHotelRooms^acme", "planner^acme", "skyfinder^acme"}},
		"crews":             {search.Filter{Crew: []string{"meteo", "lingua"}}, []string{"translator^lingua", "weather-oracle^meteo"}},
		"crew is exact":     {search.Filter{Crew: []string{"ACME"}}, nil},
		"parent tag":        {search.Filter{Tags: []string{"travel"}}, []string{"getHotelRooms^acme", "skyfinder^acme"}},
		"child tag":         {search.Filter{Tags: []string{"Travel/Flights"}}, []string{"skyfinder^acme"}},
		"part of a tag":     {search.Filter{Tags: []string{"trav"}}, nil},
		"skill's tag":       {search.Filter{Tags: []string{"office"}}, []string{"translator^lingua"}},
		"skill":             {search.Filter{Skills: []string{"seat-map"}}, []string{"skyfinder^acme"}},
		"skill's name":      {search.Filter{Skills: []string{"translate document"}}, []string{"translator^lingua"}},
		"languages are or":  {search.Filter{Languages: []string{"de", "en"}}, []string{"getHotelRooms^acme", "skyfinder^acme"}},
		"keys are and":      {search.Filter{Languages: []string{"en"}, Tags: []string{"travel/hotels"}}, []string{"getHotelRooms^acme"}},
		"message type":      {search.Filter{MessageTypes: []string{"seat.query", "room.query"}}, []string{"getHotelRooms^acme", "skyfinder^acme"}},
		"online":            {search.Filter{Online: &yes}, []string{"getHotelRooms^acme", "planner^acme"}},
		"offline in a crew": {search.Filter{Online: &no, Crew: []string{"acme"}}, []string{"skyfinder^acme"}},
		"since":             {search.Filter{UpdatedSince: time.Unix(1_700_000_003, 0)}, []string{"translator^lingua", "weather-oracle^meteo"}},
		"exclude":           {search.Filter{Crew: []string{"acme"}, Exclude: []string{"planner^acme"}}, []string{"getHotelRooms^acme", "skyfinder^acme"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := mustSearch(t, x, search.Request{Filter: c.filter, Online: online, Sort: search.ByName})
			if got := addresses(r); len(got) != len(c.want) || len(got) > 0 && !slices.Equal(got, c.want) {
				t.Errorf("found %v, want %v", got, c.want)
			}
			if r.Total != len(c.want) {
				t.Errorf("total %d, want %d", r.Total, len(c.want))
			}
		})
	}
	r := mustSearch(t, x, search.Request{Query: "travel flights rooms", Filter: search.Filter{Tags: []string{"travel/hotels"}}})
	wantAddresses(t, r, "getHotelRooms^acme")
}

func TestSortsAndPages(t *testing.T) {
	t.Parallel()
	var entries []relay.Entry
	for i := range 500 {
		entries = append(entries, mecha(relay.MechaNumber(i+1), fmt.Sprintf("m%03d^c", (i*37)%500), "sorts parcels"))
	}
	x := mustIndex(t, entries, 100)
	recent := addresses(mustSearch(t, x, search.Request{Query: "parcels", Sort: search.ByRecent, Limit: 3}))
	if want := []string{string(entries[499].Address), string(entries[498].Address), string(entries[497].Address)}; !slices.Equal(recent, want) {
		t.Errorf("recent: %v, want %v", recent, want)
	}
	for _, sort := range []search.Sort{search.ByName, search.ByRelevance, search.ByRecent} {
		seen := map[string]bool{}
		last := ""
		score := 1.0
		for offset := 0; offset < 520; offset += 40 {
			r := mustSearch(t, x, search.Request{Query: "parcels", Sort: sort, Limit: 40, Offset: offset})
			if r.Total != 500 {
				t.Fatalf("%s: total %d", sort, r.Total)
			}
			for _, h := range r.Hits {
				a := string(h.Address)
				if seen[a] || sort != search.ByRecent && a <= last || sort == search.ByRelevance && h.Score > score {
					t.Fatalf("%s: %s (%v) after %s (%v)", sort, a, h.Score, last, score)
				}
				if len(h.Matched.Terms) == 0 {
					t.Fatalf("%s: %s matched nothing", sort, a)
				}
				seen[a], last, score = true, a, h.Score
			}
		}
		if len(seen) != 500 {
			t.Errorf("%s: pages have %d of 500", sort, len(seen))
		}
	}
}

func TestFacets(t *testing.T) {
	x := mustIndex(t, travel(), 10)
	r := mustSearch(t, x, search.Request{Filter: search.Filter{Crew: []string{"acme", "lingua"}}, Facets: []string{"crew", "tags", "languages"}, Limit: 1})
	if got := fmt.Sprint(r.Facets["crew"]); got != "[{acme 3} {lingua 1}]" {
		t.Errorf("crew %s", got)
	}
	if got := fmt.Sprint(r.Facets["tags"]); got != "[{travel 2} {language 1} {office 1} {office/documents 1} {travel/flights 1} {travel/hotels 1}]" {
		t.Errorf("tags %s", got)
	}
	if got := fmt.Sprint(r.Facets["languages"]); got != "[{en 2} {de 1}]" {
		t.Errorf("languages %s", got)
	}
}

func TestHighlights(t *testing.T) {
	entries := travel()
	entries[3].Details = strings.Repeat("Etwas über Wolken und Äther. ", 40) + "Storm warnings come by satellite. " + strings.Repeat("日本語 ", 100)
	s := newShelf(entries...)
	x := mustFollow(t, scratch.Dir(t), s)
	waitFor(t, x, s.last)
	r := mustSearch(t, x, search.Request{Query: "storm satellites 日本語 weather", Highlight: true, Lookup: s.lookup})
	if len(r.Hits) == 0 || len(r.Hits[0].Highlights) == 0 {
		t.Fatalf("no highlights: %+v", r)
	}
	fields := []string{}
	for _, h := range r.Hits[0].Highlights {
		fields = append(fields, h.Field)
		end := 0
		for _, s := range h.Spans {
			if s[0] < end || s[1] <= s[0] || s[1] > len(h.Text) {
				t.Fatalf("spans %v of %q", h.Spans, h.Text)
			}
			end = s[1]
			switch word := strings.ToLower(h.Text[s[0]:s[1]]); word {
			case "storm", "satellite", "weather", "日本語":
			default:
				t.Errorf("marked %q", word)
			}
		}
		if len(h.Text) > 300 || len(h.Spans) == 0 {
			t.Errorf("%d bytes, %d spans", len(h.Text), len(h.Spans))
		}
	}
	if !slices.Contains(fields, "details") || !slices.Contains(fields, "name") {
		t.Errorf("fields %v", fields)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	x := mustIndex(t, travel(), 10)
	for name, c := range map[string]struct {
		req   search.Request
		code  relay.Code
		field string
	}{
		"nothing asked": {search.Request{}, relay.InvalidRequest, "query"},
		"only spaces":   {search.Request{Query: " \n\t"}, relay.InvalidRequest, "query"},
		"too long":      {search.Request{Query: strings.Repeat("ä", 2001)}, relay.InvalidRequest, "query"},
		"limit":         {search.Request{Query: "a", Limit: 101}, relay.InvalidLimit, "limit"},
		"limit below":   {search.Request{Query: "a", Limit: -1}, relay.InvalidLimit, "limit"},
		"sort":          {search.Request{Query: "a", Sort: "best"}, relay.InvalidRequest, "sort"},
		"facet":         {search.Request{Query: "a", Facets: []string{"id"}}, relay.InvalidRequest, "facets"},
		"cursor":        {search.Request{Query: "a", Offset: -1}, relay.InvalidRequest, "cursor"},
	} {
		_, err := x.Search(context.Background(), c.req)
		var e *relay.Error
		if !errors.As(err, &e) || e.Code != c.code || len(e.Fields) != 1 || e.Fields[0].Field != c.field {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := x.Search(context.Background(), search.Request{Query: strings.Repeat("ä", 2000)}); err != nil {
		t.Errorf("2,000 characters: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := x.Search(ctx, search.Request{Query: "flight"}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestOpenFacets(t *testing.T) {
	x := mustIndex(t, nil, 10)
	if r := mustSearch(t, x, search.Request{Query: "anything", Facets: []string{"crew"}}); r.Total != 0 {
		t.Errorf("an empty index finds %v", addresses(r))
	}
}
