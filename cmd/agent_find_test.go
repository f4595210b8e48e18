package cmd_test

import (
	"strings"
	"testing"

	"relay/http/docs"
)

// Somebody asks the first Mecha that is found, and what that completes is learned; then an
// operator has it forgotten, next to the server.
func TestAskFindsWhomToAsk(t *testing.T) {
	if !docs.Has("learning") {
		t.Skip("the ring is taken off")
	}
	t.Parallel()
	tool(t, "sh", "cat")
	p := newPair(t)
	p.describeBob()
	p.listen("--exec", "cat", "--reply")
	r := does(t, p.asAlice, "ask", "--find", "book a flight", `{"to":"Lisbon"}`, "--timeout", "1m").wantCode(t, 0, "asking bob^talk\n")
	if r.out != `{"to":"Lisbon"}`+"\n" {
		t.Errorf("%q", r.out)
	}
	p.wantWords("book", "flight")

	found := parse[struct {
		ID string `json:"request_id"`
	}](t, []byte(does(t, p.asAlice, "search", "hotels flights", "--json").wantCode(t, 0).out))
	does(t, p.asAlice, "send", "bob^talk", "{}", "--search-id", found.ID, "--wait-reply", "1m").wantCode(t, 0)
	p.wantWords("book", "flight", "hotel")

	for _, wrong := range []struct {
		args string
		code int
		says string
	}{
		{"--find zzyzx {}", 1, "found no Mecha"},
		{"--find flights bob^talk {}", 2, "chooses the address"},
		{"--find flights {} --search-id " + found.ID, 2, "cannot be combined"},
		{"--find flights {} --idempotency-key k", 2, "requires an address"},
		{"--find flights []", 2, "JSON object"},
		{"bob^talk {} --search-id srch_1", 1, "search_id"},
		{"", 2, "--find"},
	} {
		does(t, p.asAlice, append([]string{"ask"}, strings.Fields(wrong.args)...)...).wantCode(t, wrong.code, wrong.says)
	}
	does(t, p.asAlice, "ask", "--find", " ", "{}").wantCode(t, 2, "in plain words")

	if out := mustRelay(t, "search", "forget", "bob^talk", "--db", p.db); out != "what was learned about bob^talk is forgotten\n" {
		t.Errorf("%q", out)
	}
	p.wantWords()
	mustRelay(t, "search", "forget", "bob^talk", "--db", p.db, "--json") // nothing is left: that is not a fault
	runRelay(t, "search", "forget", "nobody^here", "--db", p.db).wantCode(t, 1, "no Mecha nobody^here")
	runRelay(t, "search", "forget", "me", "not", "--db", p.db).wantCode(t, 2)
	does(t, p.asAlice, "search", "--", "forget", "flights").wantCode(t, 0)
	acts := audit(t, p.db)
	if last := acts[len(acts)-1]; last.By.Command != "search forget" || last.What != "learned_forgotten" || last.Mecha != "bob^talk" {
		t.Errorf("the last act is %+v", last)
	}
	wantWhole(t, p.db)
}
