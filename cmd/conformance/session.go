package conformance

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"relay/db/relay"
	"relay/http/client"
)

// Credentials are a Mecha's. Secret is "" if the key signs.
type Credentials struct {
	Address relay.Address // "": the server is asked (whoami), which not every server can answer
	Key     string
	Secret  string
}

// ServerConfig says which server is judged, and as whom.
type ServerConfig struct {
	URL           string
	TLS           *tls.Config   // nil: the system's authorities
	First, Second Credentials   // of two Mechas
	Only          []string      // the names of checks; nil: all
	Hearing       time.Duration // within which a frame comes that must come; 0: 10 s
	Silence       time.Duration // after which nothing more comes over a socket; 0: 1.5 s
	Progress      func(check string)
}

// A Check is one rule that a server must keep.
type Check struct {
	Name    string
	Section string // where the rule stands
	Beyond  bool   // it is in this relay's protocol only
	Must    string

	run func(*session) error
}

// Checks returns all checks, in the order of the table.
func Checks() []Check { return slices.Concat(interfaceChecks, beyondChecks) }

// skipped is the error of a check that cannot be judged here.
type skipped string

func (s skipped) Error() string { return string(s) }

// CheckServer runs the checks, one after the other, and returns a result for each. The error tells that the
// server could not be asked at all, or is ctx's. The messages stay in the server, acknowledged.
func CheckServer(ctx context.Context, c ServerConfig) ([]Result, error) {
	s, err := newSession(ctx, c)
	if err != nil {
		return nil, err
	}
	defer s.tidy()
	var results []Result
	for _, check := range Checks() {
		if len(c.Only) > 0 && !slices.Contains(c.Only, check.Name) {
			continue
		}
		c.Progress(check.Name)
		r := Result{Name: check.Name, Section: check.Section, Beyond: check.Beyond, Must: check.Must}
		began := time.Now()
		err := check.run(s)
		var skip skipped
		switch {
		case ctx.Err() != nil:
			return results, ctx.Err()
		case errors.As(err, &skip):
			r.Skipped = string(skip)
		case err != nil:
			r.Why = []string{shortText(err.Error())}
		default:
			r.Passed = true
		}
		r.Seconds = time.Since(began).Seconds()
		results = append(results, r)
	}
	return results, nil
}

func shortText(s string) string {
	const limit = 300
	if runes := []rune(s); len(runes) > limit {
		return string(runes[:limit]) + "…"
	}
	return s
}

// A peer is one of the two Mechas that a server is asked as.
type peer struct {
	Credentials
	client *client.Client // for sockets
}

// A session is one round of checks.
type session struct {
	ctx              context.Context
	url              string
	http             *http.Client
	first, second    *peer
	hearing, silence time.Duration
	sent             []sent
	crowd            []sent // see many
}

// A sent is what a server has said of a message that it accepted.
type sent struct {
	MessageID      string `json:"message_id"`
	ConversationID string `json:"conversation_id"`
	CreatedAt      string `json:"created_at"`
	to             *peer
}

func newSession(ctx context.Context, c ServerConfig) (*session, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = c.TLS.Clone()
	s := &session{ctx: ctx, url: strings.TrimSuffix(c.URL, "/"), hearing: cmp.Or(c.Hearing, 10*time.Second),
		silence: cmp.Or(c.Silence, 1500*time.Millisecond), http: &http.Client{Timeout: 60 * time.Second, Transport: transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	for _, one := range []struct {
		flag string
		of   Credentials
		to   **peer
	}{{"--first", c.First, &s.first}, {"--second", c.Second, &s.second}} {
		speaker, err := client.New(client.Config{URL: c.URL, Key: one.of.Key, SigningSecret: one.of.Secret, TLS: c.TLS})
		if err != nil {
			return nil, err
		}
		if one.of.Address == "" {
			if one.of.Address, err = speaker.Address(ctx); err != nil {
				return nil, fmt.Errorf("the server does not say whose key this is: name its Mecha with %s: %w", one.flag, err)
			}
		}
		*one.to = &peer{one.of, speaker}
	}
	if s.first.Address == s.second.Address {
		return nil, errors.New("the two keys are of the same Mecha; two are needed")
	}
	if _, err := s.do(s.first, "GET", s.first.history("limit=1"), ""); err != nil {
		return nil, fmt.Errorf("the server cannot be asked: %w", err)
	}
	return s, nil
}

// tidy acknowledges what was sent, as far as that is possible.
func (s *session) tidy() {
	for _, m := range s.sent {
		_, _ = s.do(m.to, "POST", messagesPath+"/"+m.MessageID+"/ack", s.ackBody("completed"))
	}
}

func (p *peer) path() string { return "/api/v1/mecha/" + url.PathEscape(string(p.Address)) }

func (p *peer) history(query string) string { return p.path() + "/messages?" + query }

func (p *peer) secret() string {
	if p.Secret != "" {
		return p.Secret
	}
	return p.Key
}

// A reply is a whole answer.
type reply struct {
	status int
	header http.Header
	body   []byte
}

func (r *reply) String() string {
	text := strings.ToValidUTF8(string(r.body[:min(len(r.body), 120)]), "")
	return fmt.Sprintf("%d %s", r.status, relay.Visible(strings.TrimSpace(text)))
}

// A change makes the headers of a request wrong, or adds some.
type change func(http.Header)

func without(name string) change     { return func(h http.Header) { h.Del(name) } }
func with(name, value string) change { return func(h http.Header) { h.Set(name, value) } }
func both(all ...change) change      { return func(h http.Header) { apply(h, all) } }
func apply(h http.Header, all []change) {
	for _, c := range all {
		c(h)
	}
}

// headers makes the four headers of a request (interface, section 5).
func (p *peer) headers(body, timestamp string) http.Header {
	nonce := rand.Text()
	return http.Header{
		"X-Mecha-Key":         {p.Key},
		"X-Request-Timestamp": {timestamp},
		"X-Nonce":             {nonce},
		"X-Signature":         {base64.StdEncoding.EncodeToString(relay.Sign(p.secret(), []byte(body), nonce, timestamp))},
	}
}

func now() string { return time.Now().UTC().Format(time.RFC3339) }

// do sends a signed request, and reads the answer, whatever its status is.
func (s *session) do(as *peer, method, path, body string, changes ...change) (*reply, error) {
	return s.doAt(as, now(), method, path, body, changes...)
}

// doAt is do with a timestamp in any form.
func (s *session) doAt(as *peer, timestamp, method, path, body string, changes ...change) (*reply, error) {
	for attempt := 0; ; attempt++ {
		req, err := http.NewRequestWithContext(s.ctx, method, s.url+path, strings.NewReader(body))
		if err != nil {
			return nil, err
		}
		req.Header = as.headers(body, timestamp)
		if body != "" {
			req.Header.Set("Content-Type", "application/json")
		}
		apply(req.Header, changes)
		resp, err := s.http.Do(req)
		if err != nil {
			return nil, err
		}
		if resp.StatusCode == http.StatusSwitchingProtocols {
			resp.Body.Close() // a socket
			return &reply{resp.StatusCode, resp.Header, nil}, nil
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			return nil, err
		}
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		busy := resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable
		if !busy || seconds < 1 || attempt == 3 || !wait(s.ctx, time.Duration(seconds)*time.Second) {
			return &reply{resp.StatusCode, resp.Header, text}, nil
		}
	}
}

// object wants an answer with 2xx that is a JSON object, and reads it into v.
func (s *session) object(v any, as *peer, method, path, body string, changes ...change) error {
	r, err := s.do(as, method, path, body, changes...)
	if err != nil {
		return err
	}
	if r.status/100 != 2 {
		return fmt.Errorf("%s %s: %v", method, path, r)
	}
	if !bytes.HasPrefix(bytes.TrimSpace(r.body), []byte("{")) {
		return fmt.Errorf("%s %s: the answer is not a JSON object: %v", method, path, r)
	}
	return json.Unmarshal(r.body, v)
}

// refused wants an answer with 4xx.
func (s *session) refused(what string, as *peer, method, path, body string, changes ...change) error {
	r, err := s.do(as, method, path, body, changes...)
	if err != nil {
		return err
	}
	if r.status/100 != 4 {
		return fmt.Errorf("%s is not refused: %v", what, r)
	}
	return nil
}

// refusedAs wants an answer with this status and code.
func (s *session) refusedAs(status int, code relay.Code, as *peer, method, path, body string, changes ...change) error {
	r, err := s.do(as, method, path, body, changes...)
	if err != nil {
		return err
	}
	var problem struct{ Code relay.Code }
	if r.status != status || json.Unmarshal(r.body, &problem) != nil || problem.Code != code {
		return fmt.Errorf("%s %s: not refused with %d %s: %v", method, path, status, code, r)
	}
	return nil
}

// message makes the body of a send. payload is JSON; more are further fields, as in
// `,"conversation_id":"…"`.
func (s *session) message(from, to *peer, payload, more string) string {
	return fmt.Sprintf(`{"version":"1.0","from":%q,"to":%q,"payload":%s,"message_type":"conformance",`+
		`"priority":"normal","correlation_id":%q%s}`,
		from.Address, to.Address, payload, rand.Text(), more)
}

// send sends a message, and reads what the 201 says.
func (s *session) send(from, to *peer, payload, more string, changes ...change) (sent, error) {
	return s.sendBody(from, to, s.message(from, to, payload, more), changes...)
}

func (s *session) sendBody(from, to *peer, body string, changes ...change) (m sent, err error) {
	r, err := s.do(from, "POST", messagesPath, body, changes...)
	if err != nil {
		return m, err
	}
	if r.status != http.StatusCreated {
		return m, fmt.Errorf("POST %s: not 201: %v", messagesPath, r)
	}
	if err := json.Unmarshal(r.body, &m); err != nil {
		return m, fmt.Errorf("POST %s: %v", messagesPath, r)
	}
	m.to = to
	s.sent = append(s.sent, m)
	return m, nil
}

// few sends n messages from the first Mecha to the second.
func (s *session) few(n int) (all []sent, err error) {
	for i := range n {
		m, err := s.send(s.first, s.second, fmt.Sprintf(`{"number":%d}`, i), "")
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

// beyondDefaults is more messages than any default limit of the interface document.
const beyondDefaults = 205

// many sends so many messages, once in a session, and one before them, for the cursor.
func (s *session) many() (cursor sent, all []sent, err error) {
	if s.crowd == nil {
		if s.crowd, err = s.few(beyondDefaults + 1); err != nil {
			return sent{}, nil, err
		}
	}
	return s.crowd[0], s.crowd[1:], nil
}

func (s *session) ackBody(status string) string {
	return fmt.Sprintf(`{"status":%q,"client_ts":%q}`, status, now())
}

var someID = regexp.MustCompile(`msg_[0-9A-Za-z._~-]+`)

// among returns how many of these messages an answer names.
func among(body []byte, all []sent) int {
	named := map[string]bool{}
	for _, id := range someID.FindAllString(string(body), -1) {
		named[id] = true
	}
	n := 0
	for _, m := range all {
		if named[m.MessageID] {
			n++
		}
	}
	return n
}

// listed asks for a history, and returns how many of these messages it names.
func (s *session) listed(as *peer, query string, all []sent) (int, error) {
	path := as.history(query)
	r, err := s.do(as, "GET", path, "")
	if err != nil {
		return 0, err
	}
	if r.status/100 != 2 {
		return 0, fmt.Errorf("GET %s: %v", path, r)
	}
	return among(r.body, all), nil
}
