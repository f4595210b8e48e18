package http_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	nethttp "net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"relay/db/relay"
)

// withKey lists the operations that need a key, by method and path.
func withKey(t *testing.T) (all []string) {
	for _, row := range rows(t) {
		if row[3] != "anyone" {
			all = append(all, row[1]+" "+row[2])
		}
	}
	return all
}

// good makes a request of an operation that is taken. m is alice^demo, spare another key
// of hers, which prepares what the request is about.
func (m mecha) good(operation string, spare mecha, changes ...change) *call {
	m.r.t.Helper()
	method, path, _ := strings.Cut(operation, " ")
	if strings.Contains(path, "{messageId}") || strings.Contains(path, "{conversationId}") {
		sent := spare.mustSend(spare)
		path = strings.NewReplacer("{messageId}", sent.MessageID, "{conversationId}", sent.ConversationID).Replace(path)
	}
	if before, after, found := strings.Cut(path, "{requestId}"); found {
		path = before + spare.mustFind(`{"query":"nobody"}`).RequestID + after
	}
	path = strings.NewReplacer("{mechaId}", "alice^demo", "{page}", "signing.md").Replace(path)
	if strings.Contains(path, "/ws/") {
		changes = append([]change{handshake}, changes...)
	}
	return m.prepare(method, path, examples()[operation], changes...)
}

// examples has the bodies that the document gives as examples, by operation.
var examples = sync.OnceValue(func() map[string]string {
	var doc struct {
		Paths map[string]map[string]struct {
			RequestBody struct {
				Content map[string]struct{ Example json.RawMessage }
			}
		}
	}
	if err := json.Unmarshal(openAPI(), &doc); err != nil {
		panic(err)
	}
	all := map[string]string{}
	for path, item := range doc.Paths {
		for method, o := range item {
			all[strings.ToUpper(method)+" "+path] = string(o.RequestBody.Content["application/json"].Example)
		}
	}
	return all
})

// scenarios drive the operations, each by its name.
var scenarios = map[string]func(*testing.T, *drive){
	"successes": driveSuccesses, "credentials": driveCredentials, "signatures": driveSignatures, "keys that end": driveKeysThatEnd,
	"rate": driveRate, "failures": driveFailures, "large bodies": driveLargeBodies, "slow bodies": driveSlowBodies,
	"bodies that end": driveBodiesThatEnd, "encodings": driveEncodings, "nonces": driveNonces, "draining": driveDraining, "a node that is cut off": driveCutOff,
	"a broken file": driveABrokenFile, "a locked file": driveALockedFile, "a damaged file": driveADamagedFile, "a full disk": driveAFullDisk,
	"wrong requests": driveWrongRequests, "strangers": driveStrangers, "crews": driveCrews, "times": driveTimes, "states": driveStates, "sockets": driveSockets, "a removed Mecha": driveARemovedMecha,
}

// Every operation is driven: its successes, and each of its refusals. Each answer is as the document says, and everything that the document says comes back.
func TestEveryAnswerIsAsTheDocumentSays(t *testing.T) {
	t.Parallel()
	d := newDrive(t)
	t.Run("all", func(t *testing.T) {
		for name, scenario := range scenarios {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				scenario(t, d)
			})
		}
	})
	d.finish(t)
}

// alice is a key of alice^demo, and a spare one.
func (r *testRelay) alice() (m, spare mecha) {
	return r.mustIssue("alice^demo"), r.mustIssue("alice^demo")
}

// each makes a request of every operation with a key and expects the same refusal.
func (d *drive) each(t *testing.T, m, spare mecha, status int, code relay.Code, changes ...change) {
	t.Helper()
	for _, operation := range withKey(t) {
		c := m.good(operation, spare, changes...)
		a := m.r.mustDo(c)
		a.wantProblem(status, code)
		d.hold(operation, c, a)
	}
}

// do makes one request of an operation and expects a status, and a code if it is a refusal.
func (d *drive) do(m mecha, operation, path, body string, status int, code relay.Code, changes ...change) reply {
	m.r.t.Helper()
	method, _, _ := strings.Cut(operation, " ")
	c := m.prepare(method, path, body, changes...)
	a := m.r.mustDo(c)
	if code != "" {
		a.wantProblem(status, code)
	} else if a.status != status {
		m.r.t.Errorf("%s: %d %s, want %d", operation, a.status, a.body, status)
	}
	d.hold(operation, c, a)
	return a
}

const (
	opSend         = "POST /api/v1/messages"
	opMessage      = "GET /api/v1/messages/{messageId}"
	opPayload      = "GET /api/v1/messages/{messageId}/payload"
	opTrace        = "GET /api/v1/messages/{messageId}/trace"
	opAck          = "POST /api/v1/messages/{messageId}/ack"
	opDeliver      = "POST /api/v1/messages/{messageId}/deliver"
	opHistory      = "GET /api/v1/mecha/{mechaId}/messages"
	opClaim        = "POST /api/v1/mecha/{mechaId}/claim"
	opTicket       = "POST /api/v1/mecha/{mechaId}/ticket"
	opInbox        = "GET /api/v1/mecha/{mechaId}/inbox"
	opSocket       = "GET /api/v1/ws/mecha/{mechaId}"
	opConversation = "GET /api/v1/conversations/{conversationId}/messages"
	opProfile      = "GET /api/v1/mecha/{mechaId}/profile"
	opPutProfile   = "PUT /api/v1/mecha/{mechaId}/profile"
	opSearch       = "POST /api/v1/search"
	opResult       = "GET /api/v1/search/{requestId}"
)

// The waited for writes.
var writes = []string{opSend, opAck, opDeliver, opPutProfile, opClaim}

func driveSuccesses(t *testing.T, d *drive) {
	r := mustServe(t)
	alice, spare := r.alice()
	for _, operation := range withKey(t) {
		c := alice.good(operation, spare)
		a := r.mustDo(c)
		if a.status >= 400 {
			t.Errorf("%s: %d %s", operation, a.status, a.body)
		}
		d.hold(operation, c, a)
	}
	d.do(alice, opSearch, searches, `{"query":"x","facets":["crew"],"highlight":true,"explain":true}`, 200, "", with("Prefer", "wait=1"))
	etag := alice.get(inboxPath(alice)).header.Get("ETag")
	d.do(alice, opInbox, inboxPath(alice), "", 304, "", with("If-None-Match", etag))
	stranger := mecha{r: r}
	noKey := all(with("X-Mecha-Key"), with("X-Nonce"), with("X-Request-Timestamp"), unsigned)
	for _, row := range rows(t) {
		if row[3] == "anyone" && row[2] != "/" {
			d.do(stranger, row[1]+" "+row[2], strings.Replace(row[2], "{page}", "signing.md", 1), "", 200, "", noKey)
		}
	}
	d.do(stranger, "GET /docs/{page}", "/docs/none", "", 404, relay.NotFound, noKey)
	d.do(stranger, "GET /metrics", "/metrics", "", 404, relay.NotFound, noKey, with("X-Forwarded-For", "192.0.2.1"))
	r.client.CheckRedirect = func(*nethttp.Request, []*nethttp.Request) error { return nethttp.ErrUseLastResponse }
	d.do(stranger, "GET /", "/", "", 302, "", noKey)
}

func driveCredentials(t *testing.T, d *drive) {
	r := mustServe(t)
	alice, spare := r.alice()
	other := mustServe(t)
	foreign, _ := other.alice()
	d.each(t, alice, spare, 401, relay.MissingHeader, with("X-Nonce"))
	d.each(t, alice, spare, 401, relay.MalformedHeader, nonce("a b"))
	d.each(t, alice, spare, 401, relay.MalformedKey, with("X-Mecha-Key", typo(alice.Text)))
	d.each(t, alice, spare, 401, relay.UnknownKey, with("X-Mecha-Key", foreign.Text))
	d.each(t, alice, spare, 401, relay.TimestampOutOfRange, stamped("2026-01-01T00:00:00Z"))
	d.each(t, alice, spare, 401, relay.InvalidSignature, signedBy("mk_wrong"))
	for _, operation := range withKey(t) {
		c := alice.good(operation, spare)
		alice.get(whoami, nonce(c.nonce))
		d.hold(operation, c, r.mustDo(c))
	}
	for _, operation := range withKey(t) { // a slash in a parameter
		_, path, _ := strings.Cut(operation, " ")
		if begin, end := strings.Index(path, "{"), strings.Index(path, "}"); begin > 0 {
			d.do(alice, operation, path[:begin]+"a%2Fb"+path[end+1:], "", 404, relay.NotFound)
		}
	}
}

func driveSignatures(t *testing.T, d *drive) {
	r := mustServe(t, func(s *settings) { s.api.RequireSignature = true })
	alice, spare := r.alice()
	d.each(t, alice, spare, 401, relay.SignatureRequired, unsigned)
}

func driveKeysThatEnd(t *testing.T, d *drive) {
	r := mustServe(t)
	alice, spare := r.alice()
	brief := r.mustIssue("alice^demo", func(i *relay.IssueKey) { i.ExpiresAt = i.At.Add(time.Minute) })
	r.mustRevoke(alice)
	r.clock.advance(time.Hour)
	d.each(t, alice, spare, 401, relay.KeyRevoked)
	d.each(t, brief, spare, 401, relay.KeyExpired)
}

func driveRate(t *testing.T, d *drive) {
	r := mustServe(t, func(s *settings) { s.api.RateLimit, s.api.RateBurst = 1, 100 }) // the clock stands still
	alice, spare := r.alice()
	for alice.get(whoami).status == 200 {
	}
	d.each(t, alice, spare, 429, relay.RateLimited)
}

func driveFailures(t *testing.T, d *drive) {
	r := mustServe(t, func(s *settings) { s.api.FailureLimit, s.api.FailureBurst = 1, 1 })
	alice, spare := r.alice()
	alice.get(whoami, with("X-Mecha-Key")).wantProblem(401, relay.MissingHeader)
	d.each(t, alice, spare, 429, relay.TooManyFailures, with("X-Mecha-Key"))
}

func driveLargeBodies(t *testing.T, d *drive) {
	r := mustServe(t, func(s *settings) { s.api.MaxBody = 1000 })
	alice, spare := r.alice()
	d.each(t, alice, spare, 413, relay.PayloadTooLarge, func(c *call) { c.body = strings.Repeat(" ", 1001) })
}

func driveEncodings(t *testing.T, d *drive) {
	r := mustServe(t)
	alice, spare := r.alice()
	d.each(t, alice, spare, 415, relay.UnsupportedEncoding, with("Content-Encoding", "gzip"))
}

func driveSlowBodies(t *testing.T, d *drive) {
	driveByHand(t, d, 408, relay.RequestTimeout, func(io.Writer) {}, func(s *settings) { s.timeouts.Body = time.Second })
}

func driveBodiesThatEnd(t *testing.T, d *drive) {
	driveByHand(t, d, 400, relay.InvalidRequest, func(w io.Writer) { w.(interface{ CloseWrite() error }).CloseWrite() })
}

// driveByHand announces a body of which nothing comes.
func driveByHand(t *testing.T, d *drive, status int, code relay.Code, then func(io.Writer), options ...func(*settings)) {
	r := mustServe(t, options...)
	alice, spare := r.alice()
	var wg sync.WaitGroup
	for _, operation := range withKey(t) {
		c := alice.good(operation, spare)
		wg.Go(func() {
			conn := r.mustConnect(t, c.text("Content-Length: 5\r\n"))
			then(conn)
			got, err := nethttp.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Errorf("%s: %v", operation, err)
				return
			}
			a := reply{t: t, of: operation, status: got.StatusCode, header: got.Header}
			if a.body, err = io.ReadAll(got.Body); err != nil {
				t.Errorf("%s: %v", operation, err)
				return
			}
			if a.status != status || !strings.Contains(string(a.body), `"`+string(code)+`"`) {
				t.Errorf("%s: %d %s", operation, a.status, a.body)
			}
			d.hold(operation, c, a)
		})
	}
	wg.Wait()
}

func driveNonces(t *testing.T, d *drive) {
	r := mustServe(t, func(s *settings) { s.db.MaxNonces = 60 })
	alice, spare := r.alice()
	var calls []*call
	for _, operation := range withKey(t) {
		calls = append(calls, alice.good(operation, spare))
	}
	for alice.get(whoami).status == 200 {
	}
	for i, operation := range withKey(t) {
		a := r.mustDo(calls[i])
		a.wantProblem(503, relay.Overloaded)
		d.hold(operation, calls[i], a)
	}
}

func driveDraining(t *testing.T, d *drive) {
	r := mustServe(t)
	alice, spare := r.alice()
	var calls []*call
	for _, operation := range withKey(t) {
		calls = append(calls, alice.good(operation, spare))
	}
	r.api.Drain()
	for i, operation := range withKey(t) {
		d.hold(operation, calls[i], r.mustDo(calls[i]))
	}
	d.hold("GET /readyz", &call{method: "GET", path: "/readyz"}, r.anyone("GET", "/readyz"))
}

// cutOff is the db.Options.Gate of a node that is not fresh while it is set.
type cutOff struct{ off *atomic.Bool }

func (c cutOff) Fresh() bool                                     { return !c.off.Load() }
func (c cutOff) Seen(context.Context, uint64) error              { return nil }
func (c cutOff) Status(context.Context) (json.RawMessage, error) { return json.RawMessage("{}"), nil }

func driveCutOff(t *testing.T, d *drive) {
	var off atomic.Bool
	r := mustServe(t, func(s *settings) { s.db.Gate = cutOff{&off} })
	alice, spare := r.alice()
	elsewhere := with("X-Mecha-Key", mustServe(t).mustIssue("alice^demo").Text) // the other nodes may know it
	var calls, strange []*call
	for _, operation := range withKey(t) {
		calls, strange = append(calls, alice.good(operation, spare)), append(strange, alice.good(operation, spare, elsewhere))
	}
	off.Store(true)
	for i, operation := range withKey(t) {
		a := r.mustDo(strange[i])
		a.wantProblem(503, relay.NotCurrent)
		d.hold(operation, strange[i], a)
	}
	for i, operation := range withKey(t) {
		a := r.mustDo(calls[i])
		if !slices.Contains(writes, operation) {
			a.wantProblem(503, relay.NotCurrent)
		} else if a.status >= 400 {
			t.Errorf("%s: %d %s", operation, a.status, a.body)
		}
		d.hold(operation, calls[i], a)
	}
	d.hold("GET /readyz", &call{method: "GET", path: "/readyz"}, r.anyone("GET", "/readyz"))
	off.Store(false)
	alice.get(whoami).want(200)
	alice.get(whoami, elsewhere).wantProblem(401, relay.UnknownKey)
	r.anyone("GET", "/readyz").want(200)
}
