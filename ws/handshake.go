package ws

import (
	"encoding/base64"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"relay/db/relay"
)

// checkHandshake refuses a request that may not become a WebSocket, before the
// connection is taken over: RFC 6455 §4.2.1, PROTOCOL §4. The library that
// writes the 101 is more lenient, and takes over first.
func (h *Hub) checkHandshake(r *http.Request) error {
	if !hasToken(r.Header["Connection"], "upgrade") || !hasToken(r.Header["Upgrade"], "websocket") {
		return relay.Errorf(relay.UpgradeRequired, "this path speaks WebSocket: send Connection: Upgrade and Upgrade: websocket")
	}
	if v := r.Header["Sec-Websocket-Version"]; len(v) != 1 || v[0] != "13" {
		return relay.Errorf(relay.UpgradeRequired, "the relay speaks version 13 of the WebSocket protocol")
	}
	if r.ProtoMajor != 1 || r.ProtoMinor < 1 || r.Method != http.MethodGet {
		return relay.Errorf(relay.InvalidRequest, "a WebSocket is opened by GET over HTTP/1.1")
	}
	if r.Host == "" {
		return relay.Errorf(relay.InvalidRequest, "a WebSocket handshake names its Host")
	}
	if r.ContentLength != 0 || len(r.TransferEncoding) > 0 {
		return relay.Errorf(relay.InvalidRequest, "a WebSocket handshake has no body")
	}
	keys := r.Header["Sec-Websocket-Key"]
	if len(keys) != 1 || !isSecKey(keys[0]) {
		return relay.Errorf(relay.InvalidRequest, "Sec-WebSocket-Key must come once, as the Base64 of 16 bytes")
	}
	return h.checkOrigin(r)
}

func isSecKey(s string) bool {
	b, err := base64.StdEncoding.Strict().DecodeString(s)
	return err == nil && len(b) == 16
}

func hasToken(values []string, token string) bool {
	for _, v := range values {
		for t := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.TrimSpace(t), token) {
				return true
			}
		}
	}
	return false
}

// checkOrigin keeps other sites' pages out: a browser sends Origin, programs do not.
func (h *Hub) checkOrigin(r *http.Request) error {
	origins := r.Header["Origin"]
	if len(origins) == 0 {
		return nil
	}
	allows := func(allowed string) bool { return allowed == "*" || strings.EqualFold(allowed, origins[0]) }
	if len(origins) == 1 && slices.ContainsFunc(h.AllowOrigins, allows) {
		return nil
	}
	u, err := url.Parse(origins[0])
	if err == nil && len(origins) == 1 && u.Host != "" && strings.EqualFold(withPort(u.Host, u.Scheme), withPort(r.Host, u.Scheme)) {
		return nil
	}
	return relay.Errorf(relay.OriginNotAllowed, "the origin %q may not connect; relay serve --allow-origin allows one", origins[0])
}

func withPort(host, scheme string) string {
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}
	port := "80"
	if scheme == "https" {
		port = "443"
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), port)
}

// session is what a client asked for in the query (PROTOCOL §4).
type session struct {
	since     relay.MessageID // "": from the oldest pending message
	syncLimit int             // 0: live only
	receipts  bool
	acks      bool
	sync      bool
}

const (
	defaultSyncLimit = 200
	maxSyncLimit     = 1000
)

func readSession(r *http.Request) (session, error) {
	v, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return session{}, relay.Errorf(relay.InvalidRequest, "the query string is malformed: %v", err)
	}
	s := session{since: relay.MessageID(strings.Clone(v.Get("since_message_id"))), syncLimit: defaultSyncLimit}
	if v.Has("sync_limit") {
		if s.syncLimit, err = syncLimit(v.Get("sync_limit")); err != nil {
			return s, err
		}
	}
	if s.syncLimit == 0 && s.since != "" {
		return s, relay.FieldErrorf(relay.InvalidLimit, "sync_limit", "0 means live only, and cannot stand beside since_message_id")
	}
	events := strings.Split(v.Get("events"), ",")
	s.receipts = slices.Contains(events, "receipts")
	s.acks = slices.Contains(events, "acks")
	s.sync = slices.Contains(events, "sync")
	return s, nil
}

func syncLimit(text string) (int, error) {
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, relay.FieldErrorf(relay.InvalidLimit, "sync_limit", "must be a whole number from 0; above %d counts as %d", maxSyncLimit, maxSyncLimit)
	}
	n, err := strconv.Atoi(text)
	if err != nil { // digits only: too many of them
		n = maxSyncLimit
	}
	return min(n, maxSyncLimit), nil
}

func appendNumber(b []byte, n int) []byte { return strconv.AppendInt(b, int64(n), 10) }
