package cmd_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// mustBrowse starts Chromium, or skips the test where there is none.
func mustBrowse(t *testing.T) context.Context {
	t.Helper()
	program := ""
	for _, name := range []string{"chromium-headless-shell", "chromium", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			program = path
			break
		}
	}
	if program == "" {
		t.Skip("no chromium-headless-shell or chromium here: nobody looks at the relay with a browser")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.UserDataDir(t.TempDir()), chromedp.WSURLReadTimeout(patience))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(cancel)
	return ctx
}

// page is a program for a page of an agent: it signs, gets a ticket, opens the socket,
// sends itself a message, receives and acknowledges it. It knows nothing of ours.
const page = `<!doctype html><title>an agent</title><script>
async function signed(key, body) {
	const nonce = crypto.randomUUID(), timestamp = new Date().toISOString(), bytes = text => new TextEncoder().encode(text);
	const secret = await crypto.subtle.importKey("raw", bytes(key), {name: "HMAC", hash: "SHA-256"}, false, ["sign"]);
	const sum = new Uint8Array(await crypto.subtle.sign("HMAC", secret, bytes(body + "|" + nonce + "|" + timestamp)));
	return {nonce, timestamp, signature: btoa(String.fromCharCode(...sum))};
}
async function request(base, key, method, path) {
	const s = await signed(key, "");
	const headers = {"X-Mecha-Key": key, "X-Nonce": s.nonce, "X-Request-Timestamp": s.timestamp, "X-Signature": s.signature};
	const answer = await fetch(base + path, {method, headers});
	return {id: answer.headers.get("X-Request-Id"), ...await answer.json()};
}
const opened = url => new Promise((resolve, reject) => {
	const socket = new WebSocket(url);
	socket.onopen = () => resolve(socket);
	socket.onerror = () => reject(new Error("no socket"));
});
async function story(base, key, me) {
	const told = await request(base, key, "POST", "/mecha/" + me + "/ticket");
	const url = base + "/ws/mecha/" + me + "?events=acks&ticket=" + told.ticket, socket = await opened(url);
	const message = JSON.stringify({to: me, payload: {text: "grüße"}}), s = await signed(key, message), heard = {};
	const done = new Promise(resolve => socket.onmessage = event => {
		const f = JSON.parse(event.data);
		heard[f.type] = f;
		if (f.type == "message")
			socket.send(JSON.stringify({type: "ack", message_id: f.message_id, status: "completed", client_ts: new Date().toISOString()}));
		if (heard.sent && heard.ack_ok) resolve();
	});
	socket.send('{"type":"send","ref":"r1","message":' + message + ',"nonce":"' + s.nonce + '","timestamp":"' + s.timestamp + '","signature":"' + s.signature + '"}');
	await done;
	const payload = new TextDecoder().decode(Uint8Array.from(atob(heard.message.payload_base64), c => c.charCodeAt(0)));
	const again = await opened(url).then(() => "open", error => error.message);
	return {id: told.id, ref: heard.sent.ref, sent: heard.sent.message_id, received: heard.message.message_id, payload, acked: heard.ack_ok.message_id, again};
}
const outcome = promise => promise.then(value => "done: " + JSON.stringify(value), error => error.name + ": " + error.message);
</script>`

// A page of an origin that --allow-origin names gets a ticket, opens the socket, sends,
// receives and acknowledges, in a real browser. A page of another origin can do none of
// it, even with the key and with somebody else's ticket in hand.
func TestAPageOfAnAllowedOriginSendsAndReceives(t *testing.T) {
	notShort(t)
	t.Parallel()
	ctx := mustBrowse(t)
	pages := func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, page) }
	ours, foreign := httptest.NewServer(http.HandlerFunc(pages)), httptest.NewServer(http.HandlerFunc(pages))
	defer ours.Close()
	defer foreign.Close()
	db := tempDB(t)
	alice := issue(t, db, "alice^web")[0]
	s := startServer(t, db, "--allow-origin", ours.URL, "--require-message-signature", "--log-level", "debug")
	base := s.url + "/api/v1"
	on := func(url, script string) (said string) {
		t.Helper()
		tab, cancel := chromedp.NewContext(ctx)
		defer cancel()
		_, err := chromedp.Run(tab, chromedp.Navigate(url))
		if err == nil {
			said, err = chromedp.Run(tab, chromedp.Evaluate[string]("outcome("+script+")", chromedp.EvalAwaitPromise))
		}
		if err != nil {
			t.Fatal(err)
		}
		return said
	}
	story := fmt.Sprintf("story(%q, %q, %q)", base, alice.Key, alice.Address)
	text, done := strings.CutPrefix(on(ours.URL, story), "done: ")
	if !done {
		t.Fatalf("the page says %s\n%s", text, s.stderr)
	}
	told := parse[struct{ ID, Ref, Sent, Received, Payload, Acked, Again string }](t, []byte(text))
	if told.ID == "" || told.Ref != "r1" || told.Sent == "" || told.Received != told.Sent || told.Acked != told.Sent || told.Payload != `{"text":"grüße"}` || told.Again != "no socket" {
		t.Errorf("the page has seen %+v", told)
	}
	if m := s.history(alice, "")[0]; m.MessageID != told.Sent || m.State != "acknowledged" || !m.Signed {
		t.Errorf("the relay has %+v", m)
	}
	if said := on(foreign.URL, story); said != "TypeError: Failed to fetch" {
		t.Errorf("a foreign page: %s", said)
	}
	ticket := parse[struct{ Ticket string }](t, s.ask(alice, "POST", "/api/v1/mecha/"+alice.Address+"/ticket", "").want(t, http.StatusCreated)).Ticket
	socket := fmt.Sprintf("opened(%q).then(() => 1)", base+"/ws/mecha/"+alice.Address+"?ticket="+ticket)
	if said := on(foreign.URL, socket); said != "Error: no socket" {
		t.Errorf("a foreign page with a ticket: %s", said)
	}
	if n := len(s.history(alice, "")); n != 1 {
		t.Errorf("%d messages, want 1", n)
	}
}
