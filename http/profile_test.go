package http_test

import (
	"context"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"relay/db/relay"

	"github.com/coder/websocket"
)

func profilePath(a relay.Address) string { return "/api/v1/mecha/" + string(a) + "/profile" }

func (m mecha) put(body string, changes ...change) reply {
	m.r.t.Helper()
	return m.do("PUT", profilePath(m.Mecha.Address), body, changes...)
}

func TestAProfileIsPutAndRead(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^other")
	created := relay.FormatTime(r.clock.Now())
	r.clock.advance(time.Minute)
	updated := relay.FormatTime(r.clock.Now())
	card := `{"name":"Alice","skills":[{"id":"x","inputModes":["text/plain"]}]}`
	put := alice.put(`{"description":"plans","tags":["travel/flights"],"card":` + card + `,"links":{"a":"https://a.example"},"metadata":{"k":"v"},"unknown":1}`).want(200)
	var got, want map[string]any
	put.into(&got)
	if err := json.Unmarshal([]byte(`{"mecha_id":"alice^demo","name":"alice","crew":"demo","display_name":"Alice","description":"plans",
		"tags":["travel/flights"],"skills":[{"id":"x","input_modes":["text/plain"]}],"links":{"a":"https://a.example"},"metadata":{"k":"v"},
		"visibility":"public","card":`+card+`,"created_at":"`+created+`","updated_at":"`+updated+`","online":false,"last_seen":"`+updated+`"}`), &want); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("PUT gives\n%s, want\n%v", put.body, want)
	}
	r.clock.advance(time.Minute)
	if a := bob.get(profilePath("alice^demo")).want(200); string(a.body) != string(put.body) {
		t.Errorf("GET gives\n%s, PUT gave\n%s", a.body, put.body)
	}
	bob.get("/api/v1/mecha/alice%5Edemo/profile").want(200).wantField("mecha_id", `"alice^demo"`)
	r.mustRestart()
	bob.get(profilePath("alice^demo")).want(200).wantField("last_seen", `"`+updated+`"`).wantField("description", `"plans"`)

	// A PUT replaces all of it.
	alice.put(`{"version":"2"}`).want(200).wantField("description", "").wantField("skills", "").wantField("card", "").wantField("version", `"2"`).
		wantField("created_at", `"`+created+`"`).wantField("updated_at", `"`+relay.FormatTime(r.clock.Now())+`"`)
	r.mustIssue("silent^demo")
	bob.get(profilePath("silent^demo")).want(200).wantField("visibility", `"public"`).wantField("last_seen", "null").wantField("online", "false").
		wantField("created_at", `"`+relay.FormatTime(r.clock.Now())+`"`).wantField("display_name", "")
}

func TestAProfileThatIsNotPut(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
	alice.put(`{"version":"1"}`).want(200)
	bob.do("PUT", profilePath("alice^demo"), `{}`).wantProblem(403, relay.NotYourMecha)
	bob.do("PUT", profilePath("nobody^demo"), `{}`).wantProblem(403, relay.NotYourMecha)
	bob.do("PUT", profilePath("Bob^demo"), `{}`).wantProblem(403, relay.NotYourMecha)
	for _, method := range []string{"POST", "DELETE", "PATCH"} {
		a := alice.do(method, profilePath("alice^demo"), `{}`)
		a.wantProblem(405, relay.MethodNotAllowed)
		if allow := a.header.Get("Allow"); !strings.Contains(allow, "PUT") || !strings.Contains(allow, "GET") {
			t.Errorf("Allow: %s", allow)
		}
	}
	alice.put(``).wantProblem(400, relay.InvalidJSON)
	alice.put(`[]`).wantProblem(400, relay.InvalidJSON)
	alice.put(`{"tags":[],"tags":[]}`).wantProblem(400, relay.InvalidJSON)
	alice.put(`{"Tags":[]}`).wantProblem(400, relay.InvalidJSON)
	alice.put("{\"x\":\"\xff\"}").wantProblem(400, relay.InvalidJSON)
	alice.put(`{"tags":"x"}`).wantFault(400, relay.InvalidRequest, "tags")
	alice.put(`{"card":{"name":1}}`).wantFault(400, relay.InvalidRequest, "card.name")
	alice.put(`{"visibility":"secret"}`).wantFault(400, relay.InvalidRequest, "visibility")
	alice.put(`{"description":"`+strings.Repeat("x", 2001)+`"}`).wantFault(400, relay.InvalidRequest, "description")
	if p := alice.put(`{"version":"`+strings.Repeat("x", 201)+`","links":{"a":"b"}}`).wantProblem(400, relay.InvalidRequest); len(p.Errors) != 2 {
		t.Errorf("two faults, named are %v", p.Errors)
	}
	alice.put(`{"x":"`+strings.Repeat("x", 64<<10)+`"}`).wantProblem(413, relay.PayloadTooLarge)
	alice.put(`{"x":"`+strings.Repeat("x", 1<<20)+`"}`).wantProblem(413, relay.PayloadTooLarge)
	alice.get(profilePath("alice^demo")).want(200).wantField("version", `"1"`)

	alice.get(profilePath("nobody^demo")).wantProblem(404, relay.MechaNotFound)
	alice.get(profilePath("Bob^demo")).wantProblem(404, relay.MechaNotFound)
	alice.get(profilePath("bob")).wantFault(400, relay.InvalidAddress, "mechaId")
	r.anyone("GET", profilePath("alice^demo")).wantProblem(401, relay.MissingHeader)
}

func TestWhoMaySeeAProfile(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, friend, stranger := r.mustIssue("alice^demo"), r.mustIssue("friend^demo"), r.mustIssue("stranger^other")
	for _, c := range []struct {
		visibility string
		strangers  bool
	}{{"crew", false}, {"unlisted", true}, {"public", true}, {"crew", false}} {
		alice.put(`{"visibility":"`+c.visibility+`"}`).want(200).wantField("visibility", `"`+c.visibility+`"`)
		alice.get(profilePath("alice^demo")).want(200)
		friend.get(profilePath("alice^demo")).want(200).wantField("visibility", `"`+c.visibility+`"`)
		if c.strangers {
			stranger.get(profilePath("alice^demo")).want(200)
			continue
		}
		hidden := stranger.get(profilePath("alice^demo")).wantProblem(404, relay.MechaNotFound)
		unknown := stranger.get(profilePath("nobody^demo")).wantProblem(404, relay.MechaNotFound)
		if strings.ReplaceAll(hidden.Detail, "alice", "nobody") != unknown.Detail {
			t.Errorf("%q differs from %q: it tells that there is one", hidden.Detail, unknown.Detail)
		}
	}
	if err := r.db.RemoveMecha(&relay.RemoveMecha{At: r.clock.Now(), Address: "alice^demo"}); err != nil {
		t.Fatal(err)
	}
	alice.put(`{}`).wantProblem(401, relay.KeyRevoked)
	friend.get(profilePath("alice^demo")).wantProblem(404, relay.MechaNotFound)
	friend.post(messages, letter(alice)).wantProblem(404, relay.RecipientNotFound)
}

func TestOnline(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
	online := func(want string) {
		t.Helper()
		bob.get(profilePath("alice^demo")).want(200).wantField("online", want)
	}
	online("false")
	q, err := alice.prepare("GET", "", "").request(r.url)
	if err != nil {
		t.Fatal(err)
	}
	conn, _, err := websocket.Dial(context.Background(), r.url+socketPath(alice), &websocket.DialOptions{HTTPHeader: q.Header})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	online("true")
	began := time.Now()
	if err := conn.Close(websocket.StatusNormalClosure, ""); err != nil && time.Since(began) < 5*time.Second { // after five the library cuts the connection
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); bob.get(profilePath("alice^demo")).field("online") != "false"; {
		if time.Now().After(end) {
			t.Fatal("its socket is closed, and it is still online")
		}
	}
	answer := alice.mustWait("direction=in")
	online("true")
	bob.mustSend(alice)
	(<-answer).want(200)
	online("false")
}

// A PUT that was done before the relay died must not be repeated by an eavesdropper.
func TestAPutCannotBeReplayed(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice := r.mustIssue("alice^demo")
	captured := alice.prepare("PUT", profilePath("alice^demo"), `{"version":"1"}`)
	r.mustDo(captured).want(200)
	alice.put(`{"version":"2"}`).want(200)
	r.mustDo(captured).wantProblem(401, relay.NonceReused)
	r.mustCrash()
	r.mustDo(captured).wantProblem(401, relay.NonceReused)
	alice.get(profilePath("alice^demo")).want(200).wantField("version", `"2"`)
}

// The largest profile that can be put is taken back as GET gives it, with what
// the reply adds: clients read, change a word, and put it all.
func TestTheLargestProfileIsPutAgain(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice := r.mustIssue(relay.Address(strings.Repeat("a", 60) + "^" + strings.Repeat("c", 60)))
	// full returns a body of exactly 64 KiB: skills, and the last text to fill it up.
	full := func(before, text, after string) string {
		var skills []string
		for range 31 {
			skills = append(skills, `{"description":"`+strings.Repeat(text, 2000/len(text))+`"}`)
		}
		body := before + strings.Join(skills, ",") + after
		rest := 64<<10 - len(body)
		if rest < 0 || rest > 5000 {
			t.Fatal(rest)
		}
		return strings.Replace(body, "FILL", strings.Repeat("x", rest+len("FILL")), 1)
	}
	for name, body := range map[string]string{
		"plain":             full(`{"details":"FILL","skills":[`, "x", `]}`),
		"of markup":         full(`{"details":"FILL","skills":[`, "<&>", `]}`),
		"of a card":         full(`{"card":{"name":"n","version":"1","x":"FILL","skills":[`, "x", `]}}`),
		"of a marked card":  full(`{"card":{"name":"<>","version":"1","x":"FILL","skills":[`, "<&>", `]}}`),
		"of a card and own": full(`{"details":"FILL","links":{"a":"https://a.example"},"card":{"name":"n","skills":[`, "x", `]}}`),
	} {
		if len(body) != 64<<10 {
			t.Fatal(len(body))
		}
		alice.put(body+" ").wantProblem(413, relay.PayloadTooLarge)
		put := alice.put(body).want(200)
		r.clock.advance(time.Minute)
		got := alice.get(profilePath(alice.Mecha.Address)).want(200)
		again := alice.do("PUT", profilePath(alice.Mecha.Address), string(got.body))
		if again.status != 200 {
			t.Errorf("%s: %d bytes, read as %d, are refused: %.200s", name, len(body), len(got.body), again.body)
			continue
		}
		for _, field := range []string{"details", "skills", "card", "display_name", "visibility", "created_at"} {
			if string(again.field(field)) != string(put.field(field)) {
				t.Errorf("%s: %s has changed", name, field)
			}
		}
	}
	// The members that a reply adds do not raise the limit.
	alice.put(`{"mecha_id":"`+strings.Repeat("x", 2000)+`","x":"`+strings.Repeat("x", 64<<10-900)+`"}`).wantProblem(413, relay.PayloadTooLarge)
	alice.put(`{"visibility":"crew","x":"`+strings.Repeat("x", 64<<10-27)+`"}`).wantProblem(413, relay.PayloadTooLarge)
}
