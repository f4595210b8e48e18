package cmd_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// recipe writes a program of the page "clients" into the folder: the only block of Python with
// some text in it.
func (p python) recipe(name, text string) {
	p.t.Helper()
	page, err := os.ReadFile("clients/clients.md")
	if err != nil {
		p.t.Fatal(err)
	}
	var found []string
	for _, m := range regexp.MustCompile("(?ms)^```python\n(.*?)^```$").FindAllStringSubmatch(string(page), -1) {
		if strings.Contains(m[1], text) {
			found = append(found, m[1])
		}
	}
	if len(found) != 1 || strings.Count(found[0], "\n") > 30 {
		p.t.Fatalf("the page has no recipe of at most 30 lines with %s: %q", text, found)
	}
	if err := os.WriteFile(filepath.Join(p.dir, name), []byte(found[0]), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// The recipes of the page run as they stand there: an agent whose model is made up finds and asks a
// worker whose graph is made up. Each keeps its memory by conversation, and knows a failure.
func TestTheRecipesOfThePageRun(t *testing.T) {
	t.Parallel()
	p, db := newPython(t), tempDB(t)
	fakes, err := filepath.Abs("testdata/client/fakes")
	if err != nil {
		t.Fatal(err)
	}
	p.recipe("graph_worker.py", "graph.ainvoke")
	p.recipe("assistant.py", "Runner.run")
	keys := issue(t, db, "user^py", "assistant^py", "flights^py")
	user, assistant, flights := keys[0], keys[1], keys[2]
	run(t, []string{"mecha", "profile", "set", flights.Address, "-", "--db", db}, nil, `{"description":"books a flight to any place"}`).wantCode(t, 0)
	s := startServer(t, db, "--require-message-signature")
	path := fmt.Sprintf("PYTHONPATH=%s%c%s", p.dir, os.PathListSeparator, fakes)
	launch(t, p.command("graph_worker.py"), p.env(s.url, flights, path))
	launch(t, p.command("assistant.py"), p.env(s.url, assistant, path))
	ask := func(to agent, text string, more ...string) result {
		return run(t, append([]string{"ask", to.Address, fmt.Sprintf(`{"text":%q}`, text), "--conversation", "trip"}, more...), []string{"RELAY_URL=" + s.url, "RELAY_KEY=" + user.Key}, "")
	}
	eventually(t, patience, "the search knows the worker", func() bool {
		r := run(t, []string{"search", "book", "a", "flight"}, []string{"RELAY_URL=" + s.url, "RELAY_KEY=" + user.Key}, "")
		return strings.Contains(r.out, flights.Address)
	})
	const found = "flights^py: books a flight to any place says "
	for i, c := range []struct{ text, want string }{
		{"to Lisbon", found + "{'text': '1: to Lisbon'}"},
		{"fail", found + "no answer: "}, // the recipient has failed: the model is told why
		{"nobody", found + "no answer: "},
	} {
		if out := ask(assistant, c.text).wantCode(t, 0).out; !strings.Contains(out, fmt.Sprintf("turn %d, %s", i+1, c.want)) {
			t.Errorf("%s: %s", c.text, out)
		}
	}
	if out := ask(assistant, "fail").out; !strings.Contains(out, "there are no seats") {
		t.Errorf("%s", out)
	}
	// Messages of one conversation are worked on one after the other, though there are several workers.
	for i := range 4 {
		s.ask(user, "POST", "/api/v1/messages", fmt.Sprintf(`{"to":"flights^py","conversation_id":"trip","payload":{"text":"message %d"}}`, i)).want(t, 201)
	}
	ask(flights, "last").wantCode(t, 0)
	eventually(t, patience, "all are completed", func() bool { return len(s.history(flights, "state=pending&direction=in")) == 0 })
	for _, m := range s.history(flights, "direction=in") {
		if m.ConversationID == "trip" && m.Ack.Status != "completed" {
			t.Errorf("%+v", m)
		}
	}
	// The order of those was free, but the thread has them all.
	if out := ask(flights, "again").wantCode(t, 0).out; !strings.Contains(out, "6: again") {
		t.Errorf("%s", out)
	}
	ask(flights, "fail").wantCode(t, 1, "there are no seats")
}
