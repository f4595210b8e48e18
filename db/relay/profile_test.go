package relay_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"relay/db/relay"
)

func content(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// wantFault expects a refusal of a code; with a field, that it is named.
func wantFault(t *testing.T, text string, err error, code relay.Code, field string) {
	t.Helper()
	var e *relay.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Errorf("%.80s: got %v, want %s", text, err, code)
		return
	}
	if field != "" && (len(e.Fields) == 0 || e.Fields[0].Field != field || e.Fields[0].Reason == "") {
		t.Errorf("%.80s: it names %v, not %s", text, e.Fields, field)
	}
}

func member(name string, v any) string {
	text, err := json.Marshal(map[string]any{name: v})
	if err != nil {
		panic(err)
	}
	return string(text)
}

// PROTOCOL §5. Lengths are in characters: é has two bytes.
func TestTheLimitsOfAProfile(t *testing.T) {
	long := func(n int) string { return strings.Repeat("é", n) }
	list := func(n, each int) []string { return slices.Repeat([]string{long(each)}, n) }
	pairs := func(n int, value string) map[string]string {
		m := map[string]string{}
		for i := range n {
			m[fmt.Sprint("k", i)] = value
		}
		return m
	}
	skill := func(name string, v any) []any { return []any{map[string]any{"id": "fine"}, map[string]any{name: v}} }
	for _, c := range []struct {
		field    string // that is named
		at, over string
	}{
		{"display_name", member("display_name", long(200)), member("display_name", long(201))},
		{"description", member("description", long(2000)), member("description", long(2001))},
		{"details", member("details", long(16_000)), member("details", long(16_001))},
		{"version", member("version", long(200)), member("version", long(201))},
		{"tags", member("tags", list(64, 1)), member("tags", list(65, 1))},
		{"tags", member("tags", list(1, 64)), member("tags", list(1, 65))},
		{"tags", member("tags", []string{"a/b/c", "C++", "à la carte"}), member("tags", []string{"a//b"})},
		{"tags", member("tags", []string{}), member("tags", []string{""})},
		{"tags", member("tags", []string{"a-b"}), member("tags", []string{"a\nb"})},
		{"tags", member("tags", []string{"a/b"}), member("tags", []string{"a/"})},
		{"examples", member("examples", list(10, 300)), member("examples", list(11, 300))},
		{"examples", member("examples", list(1, 300)), member("examples", list(1, 301))},
		{"skills", member("skills", slices.Repeat([]any{map[string]any{"id": "x"}}, 100)), member("skills", slices.Repeat([]any{map[string]any{"id": "x"}}, 101))},
		{"skills[1].id", member("skills", skill("id", long(200))), member("skills", skill("id", long(201)))},
		{"skills[1].name", member("skills", skill("name", long(200))), member("skills", skill("name", long(201)))},
		{"skills[1].description", member("skills", skill("description", long(2000))), member("skills", skill("description", long(2001)))},
		{"skills[1].tags", member("skills", skill("tags", list(64, 64))), member("skills", skill("tags", list(65, 1)))},
		{"skills[1].tags", member("skills", skill("tags", list(1, 64))), member("skills", skill("tags", list(1, 65)))},
		{"skills[1].examples", member("skills", skill("examples", list(10, 300))), member("skills", skill("examples", list(11, 1)))},
		{"skills[1].examples", member("skills", skill("examples", list(1, 300))), member("skills", skill("examples", list(1, 301)))},
		{"skills[1].input_modes", member("skills", skill("input_modes", list(64, 200))), member("skills", skill("input_modes", list(65, 1)))},
		{"skills[1].output_modes", member("skills", skill("output_modes", list(64, 200))), member("skills", skill("output_modes", list(1, 201)))},
		{"skills[1].message_types", member("skills", skill("message_types", list(64, 64))), member("skills", skill("message_types", list(1, 65)))},
		{"languages", member("languages", list(64, 64)), member("languages", list(65, 1))},
		{"accepts_message_types", member("accepts_message_types", list(64, 64)), member("accepts_message_types", list(1, 65))},
		{"links", member("links", pairs(64, "https://a.example/x")), member("links", pairs(65, "https://a.example/x"))},
		{"links", member("links", pairs(1, "mailto:a@b.example")), member("links", pairs(1, "javascript:alert(1)"))},
		{"links", member("links", pairs(1, "http://a.example/"+strings.Repeat("x", 2048-17))), member("links", pairs(1, "http://a.example/"+strings.Repeat("x", 2049-17)))},
		{"metadata", member("metadata", pairs(64, "")), member("metadata", pairs(65, ""))},
		{"metadata", member("metadata", pairs(1, long(1024))), member("metadata", pairs(1, long(1025)))},
		{"metadata", member("metadata", map[string]string{long(64): ""}), member("metadata", map[string]string{long(65): ""})},
		{"visibility", member("visibility", "unlisted"), member("visibility", "private")},
	} {
		if _, err := relay.ReadProfile([]byte(c.at)); err != nil {
			t.Errorf("%.80s (%d bytes): %v", c.at, len(c.at), err)
		}
		_, err := relay.ReadProfile([]byte(c.over))
		wantFault(t, c.over, err, relay.InvalidRequest, c.field)
	}
	empty := len(`{"x":""}`)
	most := `{"x":"` + strings.Repeat("x", 64<<10-empty) + `"}`
	if _, err := relay.ReadProfile([]byte(most)); err != nil {
		t.Errorf("64 KiB: %v", err)
	}
	_, err := relay.ReadProfile([]byte(most + " "))
	wantFault(t, "64 KiB and a byte", err, relay.PayloadTooLarge, "")
}

func TestAProfileThatIsRefused(t *testing.T) {
	for _, c := range []struct {
		text  string
		code  relay.Code
		field string
	}{
		{`{"display_name":1}`, relay.InvalidRequest, "display_name"},
		{`{"description":["x"]}`, relay.InvalidRequest, "description"},
		{`{"details":{}}`, relay.InvalidRequest, "details"},
		{`{"version":1.5}`, relay.InvalidRequest, "version"},
		{`{"tags":"travel"}`, relay.InvalidRequest, "tags"},
		{`{"tags":["a",1]}`, relay.InvalidRequest, "tags"},
		{`{"examples":true}`, relay.InvalidRequest, "examples"},
		{`{"skills":{}}`, relay.InvalidRequest, "skills"},
		{`{"skills":["x"]}`, relay.InvalidRequest, "skills[0]"},
		{`{"skills":[{"name":1}]}`, relay.InvalidRequest, "skills[0].name"},
		{`{"skills":[{},{"name":"x"},{},{"tags":[1]},{"name":2}]}`, relay.InvalidRequest, "skills[3].tags"},
		{`{"skills":[{},{},{},{"name":"` + strings.Repeat("x", 201) + `"}]}`, relay.InvalidRequest, "skills[3].name"},
		{`{"languages":"de"}`, relay.InvalidRequest, "languages"},
		{`{"accepts_message_types":1}`, relay.InvalidRequest, "accepts_message_types"},
		{`{"links":["https://a.example"]}`, relay.InvalidRequest, "links"},
		{`{"links":{"home":1}}`, relay.InvalidRequest, "links"},
		{`{"links":{"home":"/relative"}}`, relay.InvalidRequest, "links"},
		{`{"metadata":{"n":1}}`, relay.InvalidRequest, "metadata"},
		{`{"visibility":1}`, relay.InvalidRequest, "visibility"},
		{`{"visibility":"Public"}`, relay.InvalidRequest, "visibility"},
		{`{"card":"x"}`, relay.InvalidRequest, "card"},
		{`{"card":{"name":1}}`, relay.InvalidRequest, "card.name"},
		{`{"card":{"skills":[{"tags":"x"}]}}`, relay.InvalidRequest, "card.skills[0].tags"},
		{`{"card":{"skills":[{},{"inputModes":"x"}]}}`, relay.InvalidRequest, "card.skills[1].inputModes"},
		{`{"card":{"description":"` + strings.Repeat("x", 2001) + `"}}`, relay.InvalidRequest, "description"},
		{``, relay.InvalidJSON, ""}, {`[]`, relay.InvalidJSON, ""}, {`null`, relay.InvalidJSON, ""}, {`{}{}`, relay.InvalidJSON, ""}, {`{"tags":[}`, relay.InvalidJSON, ""},
		{`{"tags":[],"tags":[]}`, relay.InvalidJSON, ""}, {`{"tags":[],"t\u0061gs":[]}`, relay.InvalidJSON, ""}, {`{"x":1,"x":2}`, relay.InvalidJSON, ""},
		{`{"Tags":[]}`, relay.InvalidJSON, ""}, {`{"VISIBILITY":"unlisted"}`, relay.InvalidJSON, ""}, {"{\"\u017fkills\":[]}", relay.InvalidJSON, ""},
		{"{\"description\":\"\xff\"}", relay.InvalidJSON, ""}, {`{"description":"\ud800"}`, relay.InvalidJSON, ""}, {"{\"x\":\"\xc3\"}", relay.InvalidJSON, ""},
		{`{"card":` + strings.Repeat(`{"x":`, 66) + `1` + strings.Repeat(`}`, 66) + `}`, relay.InvalidJSON, ""},
	} {
		_, err := relay.ReadProfile([]byte(c.text))
		wantFault(t, c.text, err, c.code, c.field)
	}
}

func TestWhatAProfileLeavesOut(t *testing.T) {
	for _, text := range []string{`{}`, `{"visibility":null,"tags":null,"card":null,"skills":null,"links":null}`, `{"unknown":{"tags":1},"online":true,"mecha_id":7}`, `{"visibility":""}`} {
		p, err := relay.ReadProfile([]byte(text))
		if err != nil || !reflect.DeepEqual(p, relay.Profile{Visibility: relay.Public}) {
			t.Errorf("%s: %+v, %v", text, p, err)
		}
	}
}

// ofCard returns a profile that has nothing but a card.
func ofCard(card []byte) []byte { return slices.Concat([]byte(`{"card":`), card, []byte(`}`)) }

func TestAnAgentCard(t *testing.T) {
	geo := content(t, "testdata/card-geo.json")
	p, err := relay.ReadProfile(ofCard(geo))
	if err != nil {
		t.Fatal(err)
	}
	if p.DisplayName != "GeoSpatial Route Planner Agent" || !strings.HasPrefix(p.Description, "Provides advanced route") || p.Version != "1.2.0" ||
		p.Visibility != relay.Public || len(p.Skills) != 2 {
		t.Errorf("%+v", p)
	}
	want := relay.Skill{
		ID: "custom-map-generator", Name: "Personalized Map Generator",
		Description: "Creates custom map images or interactive map views based on user-defined points of interest, routes, and style preferences. Can overlay data layers.",
		Tags:        []string{"maps", "customization", "visualization", "cartography"},
		Examples: []string{"Generate a map of my upcoming road trip with all planned stops highlighted.",
			"Show me a map visualizing all coffee shops within a 1-mile radius of my current location."},
		InputModes:  []string{"application/json"},
		OutputModes: []string{"image/png", "image/jpeg", "application/json", "text/html"},
	}
	if !reflect.DeepEqual(p.Skills[1], want) || !strings.HasPrefix(p.Skills[0].Examples[1], `{"origin"`) {
		t.Errorf("skills %+v", p.Skills)
	}
	if !bytes.Equal(p.Card, bytes.TrimSpace(geo)) {
		t.Errorf("the card is not kept as it was: %s", p.Card)
	}

	small := `{"name":"Echo","description":"says it again","version":"0.1","skills":[{"id":"echo","name":"Echo","description":"","tags":[]}]}`
	if p, err = relay.ReadProfile(ofCard([]byte(small))); err != nil || p.DisplayName != "Echo" || p.Description != "says it again" || p.Version != "0.1" ||
		len(p.Skills) != 1 || p.Skills[0].ID != "echo" || string(p.Card) != small {
		t.Errorf("%+v, %v", p, err)
	}
	// The profile's own fields win, one by one.
	p, err = relay.ReadProfile([]byte(`{"display_name":"Mine","skills":[],"visibility":"crew","card":` + small + `}`))
	if err != nil || p.DisplayName != "Mine" || p.Description != "says it again" || len(p.Skills) != 0 || p.Visibility != relay.CrewOnly || string(p.Card) != small {
		t.Errorf("%+v, %v", p, err)
	}
}

// Fields of a profile that are equal to its card's are not counted: a profile that was
// accepted is accepted as it is read, with the card's skills standing twice.
func TestAProfileWithALargeCardIsPutAgain(t *testing.T) {
	var skills []string
	for i := range 60 {
		skills = append(skills, fmt.Sprintf(`{"id":"s%d","description":"%s","inputModes":["text/plain"]}`, i, strings.Repeat("x", 900)))
	}
	card := `{"name":"Large","description":"d","skills":[` + strings.Join(skills, ",") + `]}`
	p, err := relay.ReadProfile(ofCard([]byte(card)))
	if err != nil {
		t.Fatal(err)
	}
	read, err := json.Marshal(p)
	if err != nil || len(read) < 64<<10 {
		t.Fatal(len(read), err)
	}
	again, err := relay.ReadProfile(read)
	if err != nil || !reflect.DeepEqual(again, p) {
		t.Errorf("%d bytes: %v", len(read), err)
	}
	// Only equal fields: with one more word in a skill, the skills are the profile's own.
	p.Skills[59].Description += "."
	if read, err = json.Marshal(p); err != nil {
		t.Fatal(err)
	}
	_, err = relay.ReadProfile(read)
	wantFault(t, "skills of its own", err, relay.PayloadTooLarge, "")
	_, err = relay.ReadProfile(slices.Concat([]byte(`{"x":"`), bytes.Repeat([]byte("x"), 64<<10), []byte(`","card":{}}`)))
	wantFault(t, "a small card", err, relay.PayloadTooLarge, "")
	_, err = relay.ReadProfile(slices.Concat(read[:len(read)-1], bytes.Repeat([]byte(" "), 64<<10), []byte(`}`)))
	wantFault(t, "space", err, relay.PayloadTooLarge, "")
}

// A profile that was accepted, written and read again, is the same.
func FuzzReadProfile(f *testing.F) {
	for _, seed := range []string{
		``, `{}`, `{"display_name":"Bob","tags":["a/b"],"visibility":"crew"}`, `{"skills":[],"card":{"skills":[{"id":"x"}]}}`, `{"skills":[{}],"links":{"a":"https://b.example"}}`,
		`{"metadata":{"a":null},"examples":[null],"languages":[]}`, `{"card":{"name":"<&>\u2028","version":"1"},"description":"\u0000"}`, `{"Tags":[]}`, "{\"x\":\"\xff\"}",
	} {
		f.Add([]byte(seed))
	}
	f.Add(content(f, "testdata/card-geo.json"))
	f.Fuzz(func(t *testing.T, body []byte) {
		p, err := relay.ReadProfile(body)
		if err != nil {
			var e *relay.Error
			if !errors.As(err, &e) || e.Code != relay.InvalidJSON && e.Code != relay.InvalidRequest && e.Code != relay.PayloadTooLarge || e.Detail == "" {
				t.Fatalf("%q: %v", body, err)
			}
			return
		}
		first, err := json.Marshal(p)
		if err != nil {
			t.Fatalf("%q: %v", body, err)
		}
		again, err := relay.ReadProfile(first)
		if relay.ErrorCode(err) == relay.PayloadTooLarge {
			return // its escapes are longer than what was escaped
		}
		if err != nil {
			t.Fatalf("%q became %q: %v", body, first, err)
		}
		if second, err := json.Marshal(again); err != nil || !bytes.Equal(first, second) {
			t.Fatalf("%q became %q, then %q, %v", body, first, second, err)
		}
	})
}
