package cmd_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// agentPage is a page that imports the client and works as an agent.
const agentPage = `<!doctype html><title>an agent</title><script type="module">
import { Relay } from "./relay.mjs";
window.said = [];
window.work = async (url, key) => {
	const relay = new Relay({ url, key, log: (text) => said.push(text) });
	for await (const m of relay.listen()) {
		if (m.payload.n === undefined) break;
		await m.handle(() => m.reply({ echo: m.payload.n, attempt: m.attempt, text: "grüße" }));
	}
};
window.ask = async (url, key, to, n, timeout) => {
	const answer = await new Relay({ url, key }).ask(to, { n }, { timeout });
	return JSON.stringify(answer.payload);
};
window.outcome = (promise) => promise.then((value) => "done: " + value, (error) => error.name + ": " + error.message);
window.ready = true;
</script>`

// A page of an allowed origin imports the client, gets a ticket, listens, answers and
// acknowledges, in a real browser, while the relay is killed and restarted. A page of
// another origin can do none of it.
func TestJavaScriptInABrowser(t *testing.T) {
	notQuick(t)
	notShort(t)
	notOnWindows(t, "there is no kill -9")
	t.Parallel()
	ctx := mustBrowse(t)
	source := mustRelay(t, "client", "js")
	pages := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/relay.mjs" {
			w.Header().Set("Content-Type", "text/javascript")
			fmt.Fprint(w, source)
			return
		}
		fmt.Fprint(w, agentPage)
	}
	ours, foreign := httptest.NewServer(http.HandlerFunc(pages)), httptest.NewServer(http.HandlerFunc(pages))
	defer ours.Close()
	defer foreign.Close()
	db := tempDB(t)
	keys := issue(t, db, "alice^web", "bob^web")
	alice, bob := keys[0], keys[1]
	serve := func() *server {
		return startProcess(t, db, "--allow-origin", ours.URL, "--require-request-signature")
	}
	relay := serve()
	f := newFront(t, relay)
	ask := func(n int) {
		t.Helper()
		r := run(t, []string{"ask", bob.Address, fmt.Sprintf(`{"n":%d}`, n), "--timeout", "2m"}, []string{"RELAY_URL=" + f.url, "RELAY_KEY=" + alice.Key}, "")
		r.wantCode(t, 0)
		if got := strings.TrimSpace(r.out); got != fmt.Sprintf(`{"echo":%d,"attempt":1,"text":"grüße"}`, n) {
			t.Errorf("the answer is %s", got)
		}
	}

	tab, cancel := chromedp.NewContext(ctx)
	defer cancel()
	if _, err := chromedp.Run(tab, chromedp.Navigate(ours.URL)); err != nil {
		t.Fatal(err)
	}
	on := func(script string) (said string) {
		t.Helper()
		said, err := chromedp.Run(tab, chromedp.Evaluate[string](script, chromedp.EvalAwaitPromise))
		if err != nil {
			t.Fatal(err)
		}
		return said
	}
	on(fmt.Sprintf(`(window.working = outcome(work(%q, %q)), "started")`, f.url, bob.Key))
	for n := range 5 {
		ask(n)
	}
	relay.kill()
	relay = serve()
	f.leadTo(relay)
	for n := range 5 {
		ask(n)
	}
	if said := on(fmt.Sprintf(`outcome(ask(%q, %q, %q, 17, 120_000))`, f.url, alice.Key, bob.Address)); said != `done: {"echo":17,"attempt":1,"text":"grüße"}` {
		t.Errorf("the page that asks: %s", said)
	}
	if r := run(t, []string{"send", bob.Address, `{}`}, []string{"RELAY_URL=" + f.url, "RELAY_KEY=" + alice.Key}, ""); r.code != 0 {
		t.Error(r.err)
	}
	if said := on(`window.working`); said != "done: undefined" {
		t.Errorf("the page that works: %s", said)
	}
	if said := on(`said.join("\n")`); !strings.Contains(said, "the connection is lost") || strings.Contains(said, "asking for messages instead") {
		t.Errorf("the page was told: %s", said)
	}
	r := run(t, []string{"inbox", "--count"}, []string{"RELAY_URL=" + f.url, "RELAY_KEY=" + bob.Key}, "")
	if r.out != "1\n" { // the last one, on which the page does not work
		t.Errorf("%s pending", r.out)
	}
	if _, err := chromedp.Run(tab, chromedp.Navigate(foreign.URL)); err != nil {
		t.Fatal(err)
	}
	if said := on(fmt.Sprintf(`outcome(Promise.race([work(%q, %q), ask(%q, %q, %q, 1, 1000)]))`, f.url, bob.Key, f.url, alice.Key, bob.Address)); !strings.HasPrefix(said, "Unreachable: ") {
		t.Errorf("a foreign page: %s", said)
	}
}
