package http_test

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"relay/db/relay"
)

// member is the JSON object with one member.
func member(name string, v any) string {
	b, err := json.Marshal(map[string]any{name: v})
	if err != nil {
		panic(err)
	}
	return string(b)
}

// Highlights are asked for where nothing can be marked: a search by filter
// alone, by a misspelled name, by words that say nothing. The hits stay.
func TestHitsWithoutAnythingToMark(t *testing.T) {
	t.Parallel()
	_, alice, _ := directory(t)
	for _, row := range []struct {
		body string
		want string
	}{
		{`{"filter":{"tags":["travel/hotels"]},"highlight":true}`, "hotels^acme"},
		{`{"query":"htels","sort":"relevance","highlight":true}`, "hotels^acme"},
		{`{"query":"the","filter":{"tags":["finance"]},"highlight":true}`, ""},
	} {
		f := alice.mustFind(row.body)
		if f.Total < len(f.Results) || f.Total > 0 && len(f.Results) == 0 || row.want != "" && !slices.Contains(f.addresses(), row.want) {
			t.Errorf("%s: total %d, found %v", row.body, f.Total, f.addresses())
		}
	}
}

// A profile that is withdrawn while a search for it is under way is not shown,
// neither as it was nor as it is now.
func TestWhatIsWithdrawnMeanwhileIsNotShown(t *testing.T) {
	t.Parallel()
	for _, change := range []string{`{"description":"a secret plan","visibility":"crew"}`, `{"description":"a secret plan","visibility":"unlisted"}`} {
		for _, options := range []string{`"limit":5`, `"highlight":true`} {
			var r *testRelay
			var once *sync.Once
			r = mustServe(t, func(s *settings) {
				s.found = func() {
					once.Do(func() {
						p, err := relay.ReadProfile([]byte(change))
						if err == nil {
							err = r.db.PutProfile(&relay.PutProfile{At: r.clock.Now(), Address: "hotels^acme", Profile: p.Stored()})
						}
						if err != nil {
							t.Error(err)
						}
					})
				}
			})
			stranger, friend := r.mustIssue("alice^demo"), r.mustIssue("friend^acme")
			r.mustIssue("hotels^acme").put(`{"description":"finds hotel rooms"}`).want(200)
			r.mustIssue("hostels^acme").put(`{"description":"finds hotel rooms, cheap"}`).want(200)
			r.mustIndex()
			once = new(sync.Once)
			f := stranger.mustFind(`{"query":"hotel rooms",` + options + `}`)
			if got := f.addresses(); !slices.Equal(got, []string{"hostels^acme"}) || f.Total != 1 {
				t.Errorf("%s, %s: a stranger finds %v of %d", change, options, got, f.Total)
			}
			r.mustIndex()
			if f := friend.mustFind(`{"query":"secret plan"}`); (f.Total == 1) != (change[len(change)-7:] == `"crew"}`) {
				t.Errorf("%s: inside the crew %v", change, f.addresses())
			}
		}
	}
}

// However a search is ordered, it finds the same.
func TestOrdersFindTheSame(t *testing.T) {
	t.Parallel()
	_, alice, _ := directory(t)
	for _, query := range []string{"hotel", "hotels", "flight booking", "invoice", "acme", "htels", "book", "reads", "bookkeeping", "flighty hotels"} {
		want := alice.mustFind(`{"query":"` + query + `"}`)
		for _, sort := range []string{"recent", "name"} {
			if f := alice.mustFind(`{"query":"` + query + `","sort":"` + sort + `"}`); f.Total != want.Total {
				t.Errorf("%q by relevance finds %v, by %s %v", query, want.addresses(), sort, f.addresses())
			}
		}
	}
}

func TestExplainAndMatched(t *testing.T) {
	t.Parallel()
	_, alice, _ := directory(t)
	f := alice.mustFind(`{"query":"book a flight","explain":true}`)
	hit := f.Results[0]
	if hit.Explain == nil || hit.Explain.Raw <= 0 || len(hit.Explain.Words) == 0 || !slices.Contains(hit.Matched.Terms, "flight") || !slices.Contains(hit.Matched.Fields, "name") {
		t.Errorf("%+v", hit)
	}
	if f = alice.mustFind(`{"query":"book a flight"}`); f.Results[0].Explain != nil {
		t.Errorf("explained unasked: %+v", f.Results[0])
	}
	a := alice.post(searches, `{"filter":{"tags":["finance"]},"explain":true,"highlight":true}`, now).want(200)
	for _, never := range []string{`"words":null`, `"terms":null`, `"fields":null`, `"highlights":null`, `"tags":null`, `"facets":null`} {
		if strings.Contains(string(a.body), never) {
			t.Errorf("%s in %s", never, a.body)
		}
	}
}

func TestACorrectedQuery(t *testing.T) {
	t.Parallel()
	_, alice, bob := directory(t)
	f := alice.mustFind(`{"query":"recipts"}`)
	if f.Corrected == nil || *f.Corrected != "receipts" || f.Query != "recipts" || !slices.Equal(f.addresses(), []string{"invoices^beta"}) {
		t.Errorf("%+v", f)
	}
	if f = alice.mustFind(`{"query":"receipts"}`); f.Corrected != nil {
		t.Errorf("corrected to %q", *f.Corrected)
	}
	// "crew" and "unlisted" are in profiles that neither may see.
	for _, m := range []mecha{alice, bob} {
		if f = m.mustFind(`{"query":"unlistd"}`); f.Corrected != nil || f.Total != 0 {
			t.Errorf("%+v", f)
		}
	}
}

// Spans are bytes of the highlight's own text, at the bounds of characters.
func TestHighlightsOfOddTexts(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice := r.mustIssue("alice^demo")
	texts := []string{
		"🚀🚀 überflüge nach Zürich — zürich!", "天気予報を調べる天気", "שלום עולם, مرحبا بالعالم", "e\u0301tude d'e\u0301te\u0301",
		"\x00a\x00zero bytes\x00", "camelCaseWords HTTPServer2Go", "ＦＵＬＬ width", "👩‍👩‍👧‍👦 family office",
	}
	for i, text := range texts {
		r.mustIssue(relay.Address("odd" + string(rune('a'+i)) + "^acme")).put(member("description", text+" "+text+" "+text+" "+text+" "+text+" "+text+" "+text+" "+text)).want(200)
	}
	r.mustIndex()
	for i, query := range []string{"ZURICH", "天気", "שלום", "étude", "zero", "http server", "full", "family"} {
		f := alice.mustFind(strings.TrimSuffix(member("query", query), "}") + `,"highlight":true}`)
		if len(f.Results) == 0 || f.Results[0].Name != "odd"+string(rune('a'+i)) || len(f.Results[0].Highlights) == 0 {
			t.Errorf("%s: %+v", query, f)
			continue
		}
		for _, h := range f.Results[0].Highlights {
			end := 0
			for _, s := range h.Spans {
				if s[0] < end || s[0] >= s[1] || s[1] > len(h.Text) || !utf8.ValidString(h.Text[s[0]:s[1]]) {
					t.Errorf("%s: span %v of %q", query, s, h.Text)
				}
				end = s[1]
			}
			if len(h.Spans) == 0 || !utf8.ValidString(h.Text) {
				t.Errorf("%s: %+v", query, h)
			}
		}
	}
}

func TestWaitIsPreferred(t *testing.T) {
	t.Parallel()
	_, alice, _ := directory(t)
	for _, c := range []struct {
		prefer []string
		status int
	}{
		{nil, 202}, {[]string{""}, 202}, {[]string{"wait=1"}, 200}, {[]string{`wait="5"`}, 200}, {[]string{"Wait = 30"}, 200},
		{[]string{"respond-async, wait=5"}, 200}, {[]string{"respond-async", "wait=5"}, 200}, {[]string{"wait=5; x=1"}, 200},
		{[]string{"wait=99999999999999999999"}, 200}, {[]string{"wait=3600"}, 200},
		{[]string{"respond-async"}, 202}, {[]string{"wait=0"}, 202}, {[]string{"wait=-1"}, 202}, {[]string{"wait"}, 202}, {[]string{"wait=soon"}, 202},
		{[]string{"wait=1.5"}, 202}, {[]string{"return=minimal"}, 202}, {[]string{`foo="a, wait=5"`}, 202}, {[]string{`foo="a\", wait=5"`}, 202},
		{[]string{`foo="a, b", wait=5`}, 200}, {[]string{`foo; wait=5`}, 202},
		{[]string{"wait=0, wait=5"}, 202}, {[]string{"wait=5, wait=0"}, 200}, // RFC 7240 §2: the first counts
	} {
		a := alice.post(searches, `{"query":"hotel"}`, with("Prefer", c.prefer...))
		if a.status != c.status || (a.header.Get("Preference-Applied") != "") != (c.status == 200) || (a.header.Get("Location") == "") {
			t.Errorf("Prefer: %q gives %d, want %d; %v", c.prefer, a.status, c.status, a.header)
		}
	}
}

func TestOnlineInASearch(t *testing.T) {
	t.Parallel()
	r, alice, _ := directory(t)
	hotels := r.mustIssue("hotels^acme")
	answer := hotels.mustWait("direction=in")
	f := alice.mustFind(`{"query":"hotel","filter":{"online":true}}`)
	if len(f.Results) != 1 || !f.Results[0].Online || f.Results[0].LastSeen == nil || *f.Results[0].LastSeen != relay.FormatTime(r.clock.Now()) {
		t.Errorf("%+v", f)
	}
	if f = alice.mustFind(`{"query":"flights","filter":{"online":true}}`); f.Total != 0 {
		t.Errorf("%+v", f)
	}
	alice.mustSend(hotels)
	(<-answer).want(200)
	if f = alice.mustFind(`{"query":"hotel","filter":{"online":false}}`); !slices.Contains(f.addresses(), "hotels^acme") || f.Results[0].Online {
		t.Errorf("%+v", f)
	}
}

// Times that do not fit into nanoseconds since 1970 are still before or after.
func TestUpdatedSinceFarAway(t *testing.T) {
	t.Parallel()
	_, alice, _ := directory(t)
	for since, want := range map[string]bool{
		"9999-12-31T23:59:59Z": false, "2300-01-01T00:00:00Z": false, "2026-11-20T08:00:00.001Z": false,
		"2026-11-20T08:00:00Z": true, "1969-07-20T20:17:40Z": true, "1600-01-01T00:00:00Z": true, "0001-01-01T00:00:00Z": true, "0000-01-01T00:00:00Z": true,
	} {
		if f := alice.mustFind(`{"query":"hotel","filter":{"updated_since":"` + since + `"}}`); slices.Contains(f.addresses(), "hotels^acme") != want {
			t.Errorf("since %s: %v", since, f.addresses())
		}
	}
}

// While the disk does not keep up, the answers that wait for it are bounded:
// then searches are refused, until it has caught up.
func TestAnswersThatWaitAreBounded(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice := r.mustIssue("alice^demo")
	r.longAnswers()
	// The writer stands still: the function that it calls after this commit does not return.
	stands, goOn := make(chan struct{}), make(chan struct{})
	r.db.PutProfileThen(&relay.PutProfile{At: r.clock.Now(), Address: "nobody^here"}, func(error) { close(stands); <-goOn })
	<-stands
	refused := 0
	for n := 0; n < 100 && refused == 0; n++ {
		if a := alice.post(searches, `{"query":"zzyzx","limit":100}`, now); a.status != 200 {
			a.wantProblem(503, relay.Overloaded)
			refused = n
		} else if len(a.body) < 1<<20 {
			t.Fatalf("an answer of %d bytes is too short for this", len(a.body))
		}
	}
	close(goOn)
	if refused == 0 {
		t.Error("100 answers of a MiB and more wait, and none is refused")
	}
	for end := time.Now().Add(patience); alice.post(searches, `{"query":"zzyzx","limit":100}`).status != 202; {
		if time.Now().After(end) {
			t.Fatal("searches are refused still")
		}
	}
}
