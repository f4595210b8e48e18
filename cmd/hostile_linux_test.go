package cmd_test

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coder/websocket"
)

// The words of an attacker: control characters of C0 and C1, DEL, and all
// bidirectional marks. The first steer a terminal, the others show another text
// than was sent.
const (
	c0      = "\x1b[2J\x1b]0;owned\x07\x08\x1b[35m"
	c1      = "\u0085\u009b2J\u009d0;owned\u009c\x7f"
	marks   = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
	hostile = "evil" + c0 + c1 + marks + "\r\nrelay: forged"
	legal   = "evil\u0085\u009b2J\u009d0;owned\u009c" + marks // in a path of a URL
)

// inJSON writes a text as JSON, with no more escapes than JSON demands.
func inJSON(text string) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.Encode(text) // a string: this cannot fail
	return strings.TrimSpace(b.String())
}

// hostileRelay answers every request as the relay does, and every text in its
// answers is hostile.
func hostileRelay(t testing.TB) string {
	mux, h, own := http.NewServeMux(), inJSON(hostile), inJSON(legal+"^x")
	record := `{"message_id":` + h + `,"conversation_id":` + h + `,"from":` + h + `,"to":` + h + `,"message_type":` + h + `,"priority":` + h +
		`,"correlation_id":` + h + `,"created_at":` + h + `,"state":` + h + `,"payload":{"text":` + h + `}}`
	for pattern, body := range map[string]string{
		"GET /api/v1/whoami":               `{"mecha_id":` + own + `,"key_id":` + h + `,"label":` + h + `,"expires_at":` + h + `}`,
		"GET /api/v1/mecha/{id}/inbox":     `{"pending":3,"by_priority":{` + h + `:3}}`,
		"GET /api/v1/mecha/{id}/messages":  `{"messages":[` + record + `]}`,
		"POST /api/v1/messages":            `{"message_id":` + inJSON(legal) + `,"conversation_id":` + h + `}`,
		"GET /api/v1/messages/{id}":        `{"state":"expired","ack":{"status":"failed","detail":` + h + `}}`,
		"POST /api/v1/messages/{id}/{act}": `{"message_id":` + h + `,"state":` + h + `,"status":` + h + `,"duplicate":true}`,
		"POST /api/v1/search": `{"total":7,"corrected_query":` + h + `,"results":[{"mecha_id":` + h + `,"display_name":` + h + `,"description":` + h +
			`,"matched":{"skill_id":` + h + `,"fields":[` + h + `],"terms":[` + h + `]}}]}`,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(body)) })
	}
	mux.HandleFunc("GET /hostile", func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["X-Hostile"] = []string{legal}
		w.Write([]byte(hostile + "\x9b cut \xe2\x80"))
	})
	mux.HandleFunc("GET /api/v1/ws/mecha/{id}", func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		conn.Write(r.Context(), websocket.MessageText, []byte(`{"type":"message","payload_base64":"`+base64.StdEncoding.EncodeToString([]byte(`{"text":`+h+`}`))+`",`+record[1:]))
		conn.Close(1008, legal)
	})
	return serveHostile(t, mux)
}

// hostileRefusals refuses every request, in the words of an attacker.
func hostileRefusals(t testing.TB) string {
	h := inJSON(hostile)
	return serveHostile(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		w.Write([]byte(`{"title":` + h + `,"detail":` + h + `,"code":` + h + `,"did_you_mean":[` + h + `]}`))
	}))
}

func serveHostile(t testing.TB, h http.Handler) string {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}
