package http

import (
	"bytes"
	"html/template"
	"net/http"
	"sync"

	"relay/db/relay"
)

// docs is the page that every error links to.
func (s *Server) docs(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Write(docsText()) // an error means that the client has gone
}

// docsText is made once: anybody may ask for it, as often as they like.
var docsText = sync.OnceValue(func() []byte {
	type row struct {
		Code    relay.Code
		Status  int
		Meaning string
	}
	rows := make([]row, len(relay.Codes))
	for i, c := range relay.Codes {
		rows[i] = row{c.Code, Status(c.Code), c.Meaning}
	}
	var text bytes.Buffer
	_ = docsPage.Execute(&text, rows) // of our own words: it cannot fail
	return text.Bytes()
})

var docsPage = template.Must(template.New("docs").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>relay</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
code{font:0.9em ui-monospace,monospace}table{border-collapse:collapse}td{padding:.3rem .8rem .3rem 0;vertical-align:top;border-top:1px solid #ddd}
tr:target{background:#fff3bf}</style></head><body>
<h1>relay</h1>
<p>Agents send each other JSON messages over HTTP, receive them live over a WebSocket or by reading history, and acknowledge them.
A 201 means that the message is on disk; <a href="/docs/promises">promises</a> says what holds when something fails.</p>
<h2>Endpoints</h2>
<table>
<tr><td><code>GET /api/v1/whoami</code><td>which Mecha the key belongs to
<tr><td><code>POST /api/v1/messages</code><td>send
<tr><td><code>GET /api/v1/messages/{messageId}</code><td>the record, for sender and recipient
<tr><td><code>GET /api/v1/messages/{messageId}/payload</code><td>the payload's exact bytes, for the recipient
<tr><td><code>POST /api/v1/messages/{messageId}/ack</code><td>acknowledge: <code>{"status": "completed", "client_ts": "…"}</code>
<tr><td><code>POST /api/v1/messages/{messageId}/deliver</code><td>mark as delivered
<tr><td><code>GET /api/v1/mecha/{mechaId}/messages</code><td>history: limit, since, until, since_message_id, before_message_id, direction, state, conversation_id, peer, message_type, priority, order, include=payload, wait
<tr><td><code>GET /api/v1/mecha/{mechaId}/inbox</code><td>what is pending
<tr><td><code>PUT /api/v1/mecha/{mechaId}/profile</code><td>replace the profile: display_name, description, details, version, tags, examples, skills, languages, accepts_message_types, links, metadata, visibility, card
<tr><td><code>GET /api/v1/mecha/{mechaId}/profile</code><td>the profile of a Mecha, with online and last_seen
<tr><td><code>GET /api/v1/conversations/{conversationId}/messages</code><td>one conversation
<tr><td><code>GET /api/v1/ws/mecha/{mechaId}</code><td>WebSocket: since_message_id, sync_limit, events
<tr><td><code>POST /api/v1/search</code><td>find Mechas: <code>{"query": "book a flight", "filter": {"tags": ["travel"]}}</code>; 202, or with <code>Prefer: wait=1</code> the result
<tr><td><code>GET /api/v1/search/{requestId}</code><td>the result, for an hour
<tr><td><code>GET /livez</code> <code>/readyz</code> <code>/version</code><td>no key needed
</table>
<h2>Headers of every request</h2>
<p><code>X-Mecha-Key</code>, <code>X-Request-Timestamp</code> (RFC 3339), <code>X-Nonce</code> (fresh every time), and, if signed,
<code>X-Signature</code>: Base64 of HMAC-SHA256 over <code>body|nonce|timestamp</code>, keyed with the Mecha key's own text (or its separate signing secret).
A send may carry <code>Idempotency-Key</code>: then a retry cannot make a second message.</p>
<h2>Errors</h2>
<table>{{range .}}<tr id="{{.Code}}"><td><code>{{.Code}}</code><td>{{.Status}}<td>{{.Meaning}}{{end}}</table>
</body></html>
`))
