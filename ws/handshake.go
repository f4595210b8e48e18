package ws

import (
	"encoding/base64"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"relay/db/relay"

	"github.com/gobwas/ws"
)

// checkHandshake refuses a request that may not become a WebSocket (RFC 6455
// §4.2.1, PROTOCOL §4). The library that writes the 101 checks less, and takes
// the connection over from HTTP before it does.
func (h *Hub) checkHandshake(r *http.Request) error {
	if err := checkUpgrade(r); err != nil {
		return err
	}
	return h.checkOrigin(r)
}

// checkUpgrade is checkHandshake without the origin.
func checkUpgrade(r *http.Request) error {
	if !hasToken(r.Header["Connection"], "upgrade") || !hasToken(r.Header["Upgrade"], "websocket") {
		return relay.Errorf(relay.UpgradeRequired,
			"this path only speaks WebSocket: send Connection: Upgrade and Upgrade: websocket")
	}
	if v := r.Header["Sec-Websocket-Version"]; len(v) != 1 || v[0] != "13" {
		return relay.Errorf(relay.UpgradeRequired, "the relay only speaks version 13 of the WebSocket protocol")
	}
	if r.ProtoMajor != 1 || r.ProtoMinor < 1 || r.Method != http.MethodGet {
		return relay.Errorf(relay.InvalidRequest, "a WebSocket handshake must be a GET request over HTTP/1.1")
	}
	if r.Host == "" {
		return relay.Errorf(relay.InvalidRequest, "a WebSocket handshake must have a Host header")
	}
	if r.ContentLength != 0 || len(r.TransferEncoding) > 0 {
		return relay.Errorf(relay.InvalidRequest, "a WebSocket handshake must not have a body")
	}
	keys := r.Header["Sec-Websocket-Key"]
	if len(keys) != 1 || !isSecKey(keys[0]) {
		return relay.Errorf(relay.InvalidRequest, "Sec-WebSocket-Key must come once, as the Base64 of 16 bytes")
	}
	return nil
}

// isSecKey reports whether a Sec-WebSocket-Key is well-formed (RFC 6455 §4.1).
func isSecKey(s string) bool {
	b, err := base64.StdEncoding.Strict().DecodeString(s)
	return err == nil && len(b) == 16
}

// hasToken reports whether a header has a token in one of its comma-separated lists.
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

// checkOrigin refuses the pages of other sites (RFC 6455 §10.2). Browsers send an
// Origin, other programs do not.
func (h *Hub) checkOrigin(r *http.Request) error {
	origins := r.Header["Origin"]
	if len(origins) == 0 {
		return nil
	}
	if len(origins) == 1 && relay.AllowsOrigin(h.config.AllowOrigins, origins[0]) {
		return nil
	}
	if len(origins) == 1 && isOwn(origins[0], r) {
		return nil
	}
	return relay.Errorf(relay.OriginNotAllowed, "the origin %q is not allowed; relay serve --allow-origin allows one",
		origins[0])
}

// isOwn reports whether an origin names the pages of the host to which a request goes.
func isOwn(origin string, r *http.Request) bool {
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(withPort(u.Host, u.Scheme), withPort(r.Host, u.Scheme))
}

// withPort adds the scheme's default port to a host that has none.
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

// upgrade answers the handshake with 101 and takes the connection over from
// HTTP. early has the bytes that came with the handshake. After an error there is
// no connection any more.
func upgrade(w http.ResponseWriter, r *http.Request, timeout time.Duration) (conn net.Conn, early []byte, err error) {
	// checkHandshake has accepted other forms, too; the library knows only these.
	r.Header["Connection"], r.Header["Upgrade"] = []string{"Upgrade"}, []string{"websocket"}
	conn, rw, _, err := ws.HTTPUpgrader{Timeout: timeout}.Upgrade(r, w)
	if err != nil {
		if conn != nil {
			conn.Close()
		}
		return nil, nil, err
	}
	early = make([]byte, rw.Reader.Buffered())
	_, _ = rw.Reader.Read(early)
	return conn, early, nil
}

// session is the query of a client's handshake (PROTOCOL §4).
type session struct {
	since     relay.MessageID // the stream starts after this message; "": at the oldest pending one
	syncLimit int             // how many messages may be in flight until the stream has caught up; 0: live only
	receipts  bool            // the client wants receipt frames
	acks      bool            // the client wants ack_ok frames
	sync      bool            // the client wants sync frames
}

const (
	defaultSyncLimit = 200
	maxSyncLimit     = 1000 // a larger sync_limit counts as this
)

func readSession(r *http.Request) (session, error) {
	v, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return session{}, relay.Errorf(relay.InvalidRequest, "the query string is malformed: %v", err)
	}
	s := session{since: relay.MessageID(strings.Clone(v.Get("since_message_id"))), syncLimit: defaultSyncLimit}
	if text := v.Get("sync_limit"); text != "" {
		if s.syncLimit, err = syncLimit(text); err != nil {
			return s, err
		}
	}
	if s.syncLimit == 0 && s.since != "" {
		return s, relay.FieldErrorf(relay.InvalidLimit, "sync_limit",
			"0 means live only, and cannot be combined with since_message_id")
	}
	events := strings.Split(v.Get("events"), ",")
	s.receipts = slices.Contains(events, "receipts")
	s.acks = slices.Contains(events, "acks")
	s.sync = slices.Contains(events, "sync")
	return s, nil
}

func syncLimit(text string) (int, error) {
	if strings.Trim(text, "0123456789") != "" {
		return 0, relay.FieldErrorf(relay.InvalidLimit, "sync_limit", "must be a whole number from 0; above %d counts as %d",
			maxSyncLimit, maxSyncLimit)
	}
	n, err := strconv.Atoi(text)
	if err != nil { // there are only digits, so the number is too large for an int
		n = maxSyncLimit
	}
	return min(n, maxSyncLimit), nil
}
