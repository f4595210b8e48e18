package http_test

import (
	"strings"
	"testing"

	"relay/db/relay"
	"relay/http"
)

// routes returns the route table: that of the API, and what the relays of these tests add.
func routes() []http.Route { return append(http.Routes(), (&testRelay{}).added()...) }

// rows returns the route table as texts: method, path, and who may call, from the second on.
func rows(t *testing.T) (all [][]string) {
	t.Helper()
	for _, row := range routes() {
		all = append(all, []string{"", row.Method, row.Path, string(row.Who)})
	}
	if len(all) < 19 {
		t.Fatalf("found only %d rows", len(all))
	}
	return all
}

// The column "who" of the route table is true: a stranger who asks for what is
// bob's is refused where the table says so, and nowhere else.
func TestWhoMayCall(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob, mallory := r.mustIssue("alice^demo"), r.mustIssue("bob^demo"), r.mustIssue("mallory^demo")
	sent := alice.mustSend(bob)
	var search found
	bob.post(searches, `{"query":"alice"}`).want(202).into(&search)
	parameters := strings.NewReplacer("{messageId}", sent.MessageID, "{mechaId}", "bob^demo",
		"{conversationId}", sent.ConversationID, "{requestId}", search.RequestID, "{page}", "promises")
	bodies := map[string]string{
		"POST /api/v1/messages":                 letter(bob),
		"POST /api/v1/messages/{messageId}/ack": ackBody("completed"),
		"PUT /api/v1/mecha/{mechaId}/profile":   `{}`,
		"POST /api/v1/search":                   `{"query":"alice"}`,
	}
	refusals := map[http.Who]relay.Code{http.Itself: relay.NotYourMecha, http.Parties: relay.NotAParty,
		http.Recipient: relay.RecipientOnly, http.Participants: relay.NotAParticipant, http.Asker: relay.NotYourSearch,
		http.AnyKey: "", http.Anyone: ""}
	for _, row := range routes() {
		method, path, who := row.Method, parameters.Replace(row.Path), row.Who
		code, known := refusals[who]
		if !known {
			t.Errorf("%s %s: who is %s?", method, row.Path, who)
			continue
		}
		without := r.anyone(method, path)
		if who == http.Anyone {
			if without.status != 200 {
				t.Errorf("%s without a key: %d", without.of, without.status)
			}
			continue
		}
		without.wantProblem(401, relay.MissingHeader)
		body := bodies[method+" "+row.Path]
		if a := mallory.do(method, path, body, handshake); code != "" {
			a.wantProblem(403, code)
		} else if a.status >= 300 {
			t.Errorf("%s by any key: %d %s", a.of, a.status, a.body)
		}
		if who == http.Recipient {
			alice.do(method, path, body).wantProblem(403, code)
		}
		if a := bob.do(method, path, body, handshake); a.status >= 300 {
			t.Errorf("%s by bob: %d %s", a.of, a.status, a.body)
		}
	}
}

// A body ends its line, so that the prompt, or the next answer, begins a new one,
// and is for people to read: < and > are not escaped. Only a payload is as it was
// sent.
func TestEveryBodyIsALineForPeople(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	bob := r.mustIssue("bob^demo")
	odd := strings.NewReplacer("{messageId}", "<a>&", "{mechaId}", "<a>&", "{conversationId}", "<a>&", "{requestId}", "<a>&", "{page}", "<a>&")
	own := strings.NewReplacer("{messageId}", bob.mustSend(bob, `"correlation_id":"<a>&"`).MessageID, "{mechaId}", "bob^demo",
		"{conversationId}", "none", "{requestId}", "none", "{page}", "promises")
	routes := append(rows(t), []string{"", "GET", "/nope"}, []string{"", "GET", "/docs/nope"}, []string{"", "PATCH", "/api/v1/whoami"})
	for _, row := range routes {
		for _, a := range []reply{r.anyone(row[1], odd.Replace(row[2])), bob.do(row[1], odd.Replace(row[2]), `{"to":"<a>&"}`), bob.do(row[1], own.Replace(row[2]), `{}`)} {
			payload := a.status == 200 && strings.HasSuffix(row[2], "/payload")
			if body := string(a.body); !payload && body != "" && (!strings.HasSuffix(body, "\n") || strings.Contains(body, `\u003`) || strings.Contains(body, `\u0026`)) {
				t.Errorf("%s: %d %q", a.of, a.status, body)
			}
		}
	}
}
