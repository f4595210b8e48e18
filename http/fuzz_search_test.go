package http_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// Whatever a search asks, it is answered by a result that is whole and shows
// nobody who hides, or by a refusal that explains itself.
func FuzzSearch(f *testing.F) {
	_, alice, _ := directory(f)
	for _, s := range []string{
		``, `{}`, `{"query":""}`, `{"query":"book a flight to lisbon","highlight":true,"explain":true,"facets":["crew","tags","languages"]}`, `{"query":"invioces","limit":1}`,
		`{"filter":{"tags":["travel"]},"sort":"name"}`, `{"filter":{"crew":"acme","languages":["de"],"online":false,"exclude":["hotels^acme"]},"sort":"recent"}`,
		`{"query":"hidden^acme"}`, `{"Query":"x"}`, `{"query":"a","query":"b"}`, `{"query":"x","filter":{"Crew":"x"}}`, `{"query":"x","filter":[]}`, `{"query":"x","limit":0}`,
		`{"query":"x","limit":1e2}`, `{"query":"x","sort":"best"}`, `{"query":"x","facets":["crew","crew","size"]}`, `{"filter":{"updated_since":"2026-11-20T08:00:00Z"}}`, `{"query":"\u0000\ud83d\ude00 *:* AND (\"~^"}`,
		`{"query":"` + strings.Repeat("flights ", 70) + `"}`, `{"query":"x","cursor":"x"}`, `{"query":null,"filter":null}`, `{"query":"fl","highlight":true}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		alice := alice.in(t)
		a := alice.post(searches, string(body), now)
		if a.status != 200 {
			var p problem
			if a.into(&p); a.status != 400 && a.status != 413 || p.Code == "" || p.Detail == "" {
				t.Fatalf("%q: %d %s", body, a.status, a.body)
			}
			return
		}
		var q struct {
			Query  string
			Sort   string
			Limit  *int
			Facets []string
		}
		if err := json.Unmarshal(body, &q); err != nil {
			t.Fatalf("%q: a result for what another reader cannot read: %v", body, err)
		}
		var r found
		a.want(200).into(&r)
		limit := 20
		if q.Limit != nil {
			limit = min(*q.Limit, 100)
		}
		if r.Status != "completed" || r.Query != strings.TrimSpace(q.Query) || len(r.Results) > limit || r.Total < len(r.Results) || len(r.Facets) > 3 {
			t.Fatalf("%q: %s", body, a.body)
		}
		for i, hit := range r.Results {
			if hit.Score < 0 || hit.Score > 1 || i > 0 && (hit.Rank != r.Results[i-1].Rank+1 || q.Sort != "recent" && q.Sort != "name" && hit.Score > r.Results[i-1].Score) {
				t.Fatalf("%q: place %d of %s", body, i, a.body)
			}
			if hidden := hit.MechaID == "secret^acme" || hit.MechaID == "hidden^acme" && !strings.Contains(strings.ToLower(r.Query), "hidden^acme"); hidden {
				t.Fatalf("%q shows %s", body, hit.MechaID)
			}
			for _, h := range hit.Highlights {
				wantSpans(t, h.Text, h.Spans)
			}
		}
		if again := alice.get(searches + "/" + r.RequestID).want(200); string(again.body) != string(a.body) {
			t.Fatalf("%q: kept as %s, not %s", body, again.body, a.body)
		}
	})
}

// wantSpans wants parts of text that are not empty, in order, and cut between characters.
func wantSpans(t *testing.T, text string, spans [][2]int) {
	t.Helper()
	end := 0
	for _, s := range spans {
		if s[0] < end || s[1] <= s[0] || s[1] > len(text) || !utf8.ValidString(text[:s[0]]) || !utf8.ValidString(text[s[0]:s[1]]) {
			t.Fatalf("%v in %q", spans, text)
		}
		end = s[1]
	}
}

// A search cursor continues with the search that gave it, and with no other.
func FuzzSearchCursor(f *testing.F) {
	_, alice, _ := directory(f)
	const search = `{"filter":{"tags":["travel"]},"sort":"name","limit":1`
	first := alice.mustFind(search + `}`)
	raw, err := base64.RawURLEncoding.DecodeString(*first.NextCursor)
	if err != nil {
		f.Fatal(err)
	}
	_, print, _ := strings.Cut(string(raw), ".")
	encode := base64.RawURLEncoding.EncodeToString
	f.Add("")
	for _, n := range []string{"0", "1", "2", "10000", "10001", "-1", "+1", "01", "1e1", "", "99999999999999999999"} {
		f.Add(encode([]byte(n + "." + print)))
		f.Add(encode([]byte(n + ".0")))
	}
	f.Add(*first.NextCursor + "=")
	f.Fuzz(func(t *testing.T, cursor string) {
		alice := alice.in(t)
		text, _ := json.Marshal(cursor)
		a := alice.post(searches, search+`,"cursor":`+string(text)+`}`, now)
		if a.status != 200 {
			a.wantFault(400, "invalid_request", "cursor")
			return
		}
		var r found
		a.into(&r)
		var n int
		if cursor != "" {
			raw, _ := base64.RawURLEncoding.DecodeString(strings.ToValidUTF8(cursor, "\ufffd"))
			var mark string
			if k, _ := fmt.Sscanf(string(raw), "%d.%s", &n, &mark); k != 2 || mark != print || n < 0 || n > 10000 {
				t.Fatalf("%q (%q) was taken", cursor, raw)
			}
		}
		want := []string{"flights^acme", "hotels^acme"}[min(n, 2):]
		if got := r.addresses(); !slices.Equal(got, want[:min(len(want), 1)]) || len(got) == 1 && r.Results[0].Rank != n+1 {
			t.Fatalf("%q, from %d: %s", cursor, n, a.body)
		}
	})
}
