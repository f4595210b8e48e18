package http_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"relay/db/relay"
)

const searches = "/api/v1/search"

// found is what the tests look at in the answer to a search.
type found struct {
	RequestID  string  `json:"request_id"`
	Status     string  `json:"status"`
	Query      string  `json:"query"`
	Corrected  *string `json:"corrected_query"`
	Total      int     `json:"total"`
	Ranking    string  `json:"ranking_version"`
	NextCursor *string `json:"next_cursor"`
	ResultURL  string  `json:"result_url"`
	ExpiresAt  string  `json:"expires_at"`
	Results    []struct {
		Rank     int                `json:"rank"`
		MechaID  string             `json:"mecha_id"`
		Name     string             `json:"name"`
		LastSeen *string            `json:"last_seen"`
		Explain  *relay.Explanation `json:"explain"`
		Score    float64            `json:"score"`
		Online   bool               `json:"online"`
		Matched  struct {
			SkillID *string  `json:"skill_id"`
			Fields  []string `json:"fields"`
			Terms   []string `json:"terms"`
		} `json:"matched"`
		Highlights []struct {
			Field string   `json:"field"`
			Text  string   `json:"text"`
			Spans [][2]int `json:"spans"`
		} `json:"highlights"`
	} `json:"results"`
	Facets map[string][]struct {
		Value string `json:"value"`
		Count int    `json:"count"`
	} `json:"facets"`
}

func (f found) addresses() (all []string) {
	for _, r := range f.Results {
		all = append(all, r.MechaID)
	}
	return all
}

// mustIndex waits until the index has what the directory has.
func (r *testRelay) mustIndex() {
	r.t.Helper()
	x, err := r.index.open()
	if err != nil {
		r.t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		behind, err := r.db.EntriesAfter(context.Background(), x.Progress().Revision, 1)
		if err != nil {
			r.t.Fatal(err)
		}
		if len(behind) == 0 {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("the index stands at %+v", x.Progress())
		}
	}
}

// now asks for the result itself.
var now = with("Prefer", "wait=5")

// mustFind searches and wants the result at once.
func (m mecha) mustFind(body string) (f found) {
	m.r.t.Helper()
	m.post(searches, body, now).want(200).into(&f)
	return f
}

// directory is a relay with some Mechas to find.
func directory(t testing.TB) (r *testRelay, alice, bob mecha) {
	r = mustServe(t)
	alice, bob = r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
	for address, profile := range map[relay.Address]string{
		"flights^acme":  `{"display_name":"Flight booker","description":"books flights and seats","tags":["travel/flights"],"languages":["en"],"skills":[{"id":"book","name":"Book a flight","examples":["get me to Lisbon on Friday"]}]}`,
		"hotels^acme":   `{"description":"finds hotel rooms","tags":["travel/hotels"],"languages":["de"]}`,
		"invoices^beta": `{"description":"reads invoices and receipts","tags":["finance"]}`,
		"secret^acme":   `{"description":"books flights for the crew only","visibility":"crew"}`,
		"hidden^acme":   `{"description":"books flights, unlisted","visibility":"unlisted"}`,
	} {
		r.mustIssue(address).put(profile).want(200)
	}
	r.mustIndex()
	return r, alice, bob
}

func TestSearch(t *testing.T) {
	t.Parallel()
	_, alice, _ := directory(t)
	for name, row := range map[string]struct {
		body string
		want []string
	}{
		"by what it does":        {`{"query":"book a flight to lisbon"}`, []string{"flights^acme"}},
		"by address":             {`{"query":"hotels^acme"}`, []string{"hotels^acme"}},
		"by name, with a typo":   {`{"query":"invioces"}`, []string{"invoices^beta"}},
		"by tag":                 {`{"filter":{"tags":["travel"]},"sort":"name"}`, []string{"flights^acme", "hotels^acme"}},
		"by one tag, not a list": {`{"filter":{"tags":"finance"}}`, []string{"invoices^beta"}},
		"by crew and language":   {`{"filter":{"crew":["acme"],"languages":["de"]}}`, []string{"hotels^acme"}},
		"unlisted, by address":   {`{"query":"hidden^acme"}`, []string{"hidden^acme"}},
		"itself, by address":     {`{"query":"alice^demo"}`, []string{"alice^demo"}},
		"without a profile":      {`{"query":"bob^demo"}`, []string{"bob^demo"}},
		"nothing":                {`{"query":"xylophone zoology"}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := alice.in(t).mustFind(row.body)
			if got := f.addresses(); len(row.want) > len(got) || !slices.Equal(got[:len(row.want)], row.want) {
				t.Errorf("found %v, want %v first", got, row.want)
			}
			if f.Status != "completed" || f.Ranking == "" || f.Total < len(f.Results) {
				t.Errorf("%+v", f)
			}
		})
	}
	if got := alice.mustFind(`{"query":"flights"}`).addresses(); slices.Contains(got, "secret^acme") || slices.Contains(got, "hidden^acme") {
		t.Errorf("found %v", got)
	}
}

func TestWhatASearchTells(t *testing.T) {
	t.Parallel()
	_, alice, _ := directory(t)
	f := alice.mustFind(`{"query":"book a flight","highlight":true,"facets":["crew","tags"],"limit":1}`)
	if len(f.Results) != 1 {
		t.Fatalf("%+v", f)
	}
	hit := f.Results[0]
	if hit.Rank != 1 || hit.Score <= 0 || hit.Score > 1 || hit.Matched.SkillID == nil || *hit.Matched.SkillID != "book" || len(hit.Highlights) == 0 {
		t.Errorf("%+v", hit)
	}
	for _, h := range hit.Highlights {
		for _, s := range h.Spans {
			if s[0] < 0 || s[0] >= s[1] || s[1] > len(h.Text) {
				t.Errorf("span %v of %q", s, h.Text)
			}
		}
	}
	if len(f.Facets["crew"]) == 0 || len(f.Facets["tags"]) == 0 {
		t.Errorf("facets %v", f.Facets)
	}
}

func TestASearchIsKept(t *testing.T) {
	t.Parallel()
	r, alice, bob := directory(t)
	var f found
	a := alice.post(searches, `{"query":"hotel"}`).want(202)
	a.into(&f)
	if f.Status != "completed" || f.ResultURL != searches+"/"+f.RequestID || a.header.Get("Location") != f.ResultURL || !strings.HasPrefix(f.RequestID, "srch_") {
		t.Errorf("%+v", f)
	}
	first := string(alice.get(f.ResultURL).want(200).body)
	bob.get(f.ResultURL).wantProblem(403, relay.NotYourSearch)
	alice.get(searches+"/srch_none").wantProblem(404, relay.SearchNotFound)

	r.mustIssue("hostel^acme").put(`{"description":"hotel, cheap"}`).want(200)
	r.mustIndex()
	if again := string(alice.get(f.ResultURL).want(200).body); again != first {
		t.Errorf("the answer changed from\n%s to\n%s", first, again)
	}
	r.mustRestart()
	alice.r, bob.r = r, r
	if again := string(alice.get(f.ResultURL).want(200).body); again != first {
		t.Errorf("after a restart the answer is\n%s, not\n%s", again, first)
	}
	bob.get(f.ResultURL).wantProblem(403, relay.NotYourSearch)
	r.clock.advance(time.Hour)
	alice.get(f.ResultURL).wantProblem(410, relay.SearchExpired)
}

func TestOnlyTheNewestSearchesAreKept(t *testing.T) {
	t.Parallel()
	r, alice, _ := directory(t)
	var ids []string
	for i := range 105 {
		ids = append(ids, alice.mustFind(fmt.Sprintf(`{"query":"hotel %d"}`, i)).RequestID)
	}
	r.mustRestart()
	alice.r = r
	alice.get(searches+"/"+ids[4]).wantProblem(404, relay.SearchNotFound)
	alice.get(searches + "/" + ids[5]).want(200)
}

func TestPagesOfASearch(t *testing.T) {
	t.Parallel()
	r, alice, _ := directory(t)
	for i := range 25 {
		r.mustIssue(relay.Address(fmt.Sprintf("worker%02d^many", i))).put(`{"description":"sorts parcels"}`).want(200)
	}
	r.mustIndex()
	var all []string
	cursor := ""
	for pages := 0; ; pages++ {
		f := alice.mustFind(`{"query":"sorts parcels","limit":10,"cursor":"` + cursor + `"}`)
		all = append(all, f.addresses()...)
		if f.NextCursor == nil {
			if pages != 2 {
				t.Errorf("%d pages", pages+1)
			}
			break
		}
		cursor = *f.NextCursor
	}
	if len(all) != 25 || !slices.IsSorted(all) { // equal scores are ordered by address
		t.Errorf("%v", all)
	}
	alice.post(searches, `{"query":"another","cursor":"`+cursor+`"}`).wantFault(400, relay.InvalidRequest, "cursor")
	alice.post(searches, `{"query":"sorts parcels","cursor":"???"}`).wantFault(400, relay.InvalidRequest, "cursor")
}

func TestSearchesThatAreRefused(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice := r.mustIssue("alice^demo")
	for name, row := range map[string]struct {
		body  string
		code  relay.Code
		field string
	}{
		"nothing asked":        {`{}`, relay.InvalidRequest, "query"},
		"empty":                {`{"query":"  ","filter":{}}`, relay.InvalidRequest, "query"},
		"too long":             {`{"query":"` + strings.Repeat("ä", 2001) + `"}`, relay.InvalidRequest, "query"},
		"an unknown filter":    {`{"query":"a","filter":{"color":"red"}}`, relay.InvalidRequest, "filter.color"},
		"an unknown sort":      {`{"query":"a","sort":"luck"}`, relay.InvalidRequest, "sort"},
		"a limit of none":      {`{"query":"a","limit":0}`, relay.InvalidLimit, "limit"},
		"a negative limit":     {`{"query":"a","limit":-1}`, relay.InvalidLimit, "limit"},
		"an unknown facet":     {`{"query":"a","facets":["size"]}`, relay.InvalidRequest, "facets"},
		"a time that is none":  {`{"filter":{"updated_since":"yesterday"}}`, relay.InvalidTime, "filter.updated_since"},
		"a number for a query": {`{"query":5}`, relay.InvalidRequest, "query"},
	} {
		t.Run(name, func(t *testing.T) {
			alice.in(t).post(searches, row.body, now).wantFault(400, row.code, row.field)
		})
	}
	alice.post(searches, `{"query":"a","QUERY":"b"}`).wantProblem(400, relay.InvalidJSON)
	alice.post(searches, `[]`).wantProblem(400, relay.InvalidJSON)
	alice.mustFind(`{"query":"a","limit":1000,"unknown":true}`)
}

func TestASearchIsNotReplayed(t *testing.T) {
	t.Parallel()
	r, alice, _ := directory(t)
	c := alice.prepare("POST", searches, `{"query":"hotel"}`)
	r.mustDo(c).want(202)
	r.mustRestart()
	r.mustDo(c).wantProblem(401, relay.NonceReused)
}
