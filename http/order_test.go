package http_test

import (
	"net/url"
	"strings"
	"testing"

	"relay/db/relay"
)

// Of several faults the one that PROTOCOL §2, Order of checks, puts first is answered.
func TestTheOrderOfChecks(t *testing.T) {
	t.Parallel()
	r := mustServe(t, func(s *settings) { s.api.MaxBody = 1000 })
	alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
	theirs, mine := bob.mustSend(bob).MessageID, alice.mustSend(bob).MessageID
	alice.get(whoami, nonce("used")).want(200)

	const old = "2026-11-20T07:00:00Z"
	large := strings.Repeat("x", 1001)
	noKey, badKey := with("X-Mecha-Key"), with("X-Mecha-Key", typo(alice.Text))
	gzip := with("Content-Encoding", "gzip")
	wrong := signedBy("mk_wrong")
	for name, row := range map[string]struct {
		method, path, body string
		change
		status int
		code   relay.Code
	}{
		"404 before the key":                     {"POST", "/api/v1/nothing", large, noKey, 404, relay.NotFound},
		"405 before the key":                     {"PUT", messages, large, noKey, 405, relay.MethodNotAllowed},
		"no key before 415, 413":                 {"POST", messages, large, all(noKey, gzip), 401, relay.MissingHeader},
		"bad key before 415, 413":                {"POST", messages, large, all(badKey, gzip), 401, relay.MalformedKey},
		"bad key before syntax":                  {"POST", messages, "{}", all(badKey, nonce("a b")), 401, relay.MalformedKey},
		"415 before 413":                         {"POST", messages, large, gzip, 415, relay.UnsupportedEncoding},
		"415 before syntax":                      {"POST", messages, "{}", all(gzip, nonce("a b")), 415, relay.UnsupportedEncoding},
		"413 before a missing header":            {"POST", messages, large, with("X-Nonce"), 413, relay.PayloadTooLarge},
		"413 before the timestamp":               {"POST", messages, large, stamped(old), 413, relay.PayloadTooLarge},
		"413 before the signature":               {"POST", messages, large, wrong, 413, relay.PayloadTooLarge},
		"syntax before the timestamp":            {"POST", messages, "{}", all(nonce("a b"), stamped(old)), 401, relay.MalformedHeader},
		"timestamp before the signature":         {"POST", messages, "{}", all(stamped(old), wrong), 401, relay.TimestampOutOfRange},
		"signature before the nonce":             {"POST", messages, "{}", all(wrong, nonce("used")), 401, relay.InvalidSignature},
		"nonce before the path":                  {"GET", "/api/v1/mecha/nobody/messages", "", nonce("used"), 401, relay.NonceReused},
		"nonce before 403":                       {"GET", historyPath(bob), "", nonce("used"), 401, relay.NonceReused},
		"nonce before the body":                  {"POST", messages, "{", nonce("used"), 401, relay.NonceReused},
		"path before the parameters":             {"GET", "/api/v1/mecha/nobody/messages?limit=0", "", all(), 400, relay.InvalidAddress},
		"403 before the parameters":              {"GET", historyPath(bob) + "?limit=0", "", all(), 403, relay.NotYourMecha},
		"403 before a cursor that is none":       {"GET", historyPath(bob) + "?since_message_id=x", "", all(), 403, relay.NotYourMecha},
		"403 before whether it is there":         {"GET", "/api/v1/mecha/nobody%5Edemo/inbox", "", all(), 403, relay.NotYourMecha},
		"403 before the body, ack":               {"POST", messagePath(theirs) + "/ack", "{", all(), 403, relay.RecipientOnly},
		"403 before a field, ack":                {"POST", messagePath(theirs) + "/ack", `{"status":""}`, all(), 403, relay.RecipientOnly},
		"403 before the body, ack by the sender": {"POST", messagePath(mine) + "/ack", "{", all(), 403, relay.RecipientOnly},
		"404 before the body, ack":               {"POST", messagePath("msg_none") + "/ack", "{", all(), 404, relay.MessageNotFound},
		"sender before recipient":                {"POST", messages, `{"from":"bob^demo","to":"nobody^demo","payload":{}}`, all(), 403, relay.SenderMismatch},
		"rules before the recipient":             {"POST", messages, `{"to":"nobody^demo","payload":[]}`, all(), 400, relay.InvalidRequest},
		"socket: 403 before the handshake":       {"GET", socketPath(bob), "", all(), 403, relay.NotYourMecha},
		"socket: nonce before 426":               {"GET", socketPath(alice), "", nonce("used"), 401, relay.NonceReused},
		"socket: 426":                            {"GET", socketPath(alice), "", all(), 426, relay.UpgradeRequired},
	} {
		t.Run(name, func(t *testing.T) {
			alice.in(t).do(row.method, row.path, row.body, row.change).wantProblem(row.status, row.code)
		})
	}
	r.wantMessages(2)
}

func TestTheRateComesBetweenKeyAndBody(t *testing.T) {
	t.Parallel()
	r := mustServe(t, func(s *settings) { s.api.MaxBody, s.api.RateLimit, s.api.RateBurst = 1000, 1, 1 })
	alice := r.mustIssue("alice^demo")
	large := strings.Repeat("x", 1001)
	alice.get(whoami).want(200)
	alice.post(messages, large, with("Content-Encoding", "gzip"), nonce("a b")).wantProblem(429, relay.RateLimited)
	alice.post(messages, large, with("X-Mecha-Key", typo(alice.Text))).wantProblem(401, relay.MalformedKey)
}

// Paths and methods are public: without credentials, too, a client learns that one does
// not exist.
func TestRoutes(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	for _, row := range []struct {
		method, path string
		status       int
		allow        string
	}{
		{"POST", "/", 405, "GET, HEAD"}, // GET leads to the documentation
		{"GET", "/nothing", 404, ""},
		{"GET", "/api/v1", 404, ""},
		{"GET", "/api/v1/messages/", 404, ""}, // never redirected: a signed request goes where it says
		{"POST", "/api/v1/messages/", 404, ""},
		{"POST", "/API/v1/messages", 404, ""},
		{"GET", "/api/v2/whoami", 404, ""},
		{"GET", "/api/v1/messages/a/b/c", 404, ""},
		{"GET", "/api/v1/messages", 405, "POST"},
		{"HEAD", "/api/v1/messages", 405, "POST"},
		{"OPTIONS", "/api/v1/messages", 405, "POST"},
		{"DELETE", "/api/v1/messages/msg_x", 405, "GET, HEAD"},
		{"POST", "/api/v1/messages/msg_x/payload", 405, "GET, HEAD"},
		{"GET", "/api/v1/messages/msg_x/ack", 405, "POST"},
		{"PUT", "/api/v1/messages/msg_x/deliver", 405, "POST"},
		{"POST", "/api/v1/whoami", 405, "GET, HEAD"},
		{"POST", "/api/v1/mecha/a%5Eb/messages", 405, "GET, HEAD"},
		{"POST", "/api/v1/mecha/a%5Eb/inbox", 405, "GET, HEAD"},
		{"POST", "/api/v1/conversations/c/messages", 405, "GET, HEAD"},
		{"POST", "/api/v1/ws/mecha/a%5Eb", 405, "GET"},
		{"POST", "/livez", 405, "GET, HEAD"},
	} {
		t.Run(row.method+" "+row.path, func(t *testing.T) {
			a := r.anyone(row.method, row.path)
			if a.header.Get("Allow") != row.allow || a.status != row.status {
				t.Errorf("%d, Allow: %q; want %d, %q", a.status, a.header.Get("Allow"), row.status, row.allow)
			}
			switch {
			case row.method == "HEAD":
			case row.status == 404:
				a.wantProblem(404, relay.NotFound)
			default:
				a.wantProblem(405, relay.MethodNotAllowed)
			}
		})
	}
}

// An address in a path may have its ^ as it is, or escaped; not escaped twice.
func TestTheCaretInAPath(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice := r.mustIssue("alice^demo")
	host := strings.TrimPrefix(r.url, "http://")
	for path, status := range map[string]int{
		"/api/v1/mecha/alice^demo/inbox":      200,
		"/api/v1/mecha/alice%5Edemo/inbox":    200,
		"/api/v1/mecha/alice%5edemo/inbox":    200,
		"/api/v1/mecha/%61lice%5Edemo/inbox":  200,
		"/api/v1/mecha/alice%255Edemo/inbox":  400,
		"/api/v1/mecha/alice%20demo/inbox":    400,
		"/api/v1/mecha/alice%5Edemo%00/inbox": 400,
		"/api/v1/mecha/Alice^demo/inbox":      403,
	} {
		q, err := alice.prepare("GET", "", "").request(r.url)
		if err != nil {
			t.Fatal(err)
		}
		q.URL = &url.URL{Scheme: "http", Host: host, Opaque: path} // goes out as it is
		a, err := r.client.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		a.Body.Close()
		if a.StatusCode != status {
			t.Errorf("%s: status %d, want %d", path, a.StatusCode, status)
		}
	}
}
