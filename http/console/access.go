package console

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/base64"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"relay/db/relay"
)

const (
	sessionFor  = 12 * time.Hour
	maxSessions = 64 // the oldest makes room for a new one
	maxSecret   = 4 << 10
)

// policy is the Content-Security-Policy: only what this console itself serves, no script or
// style within a page, and none that is made of a text.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"

// guarded sets the headers of all answers, and refuses what comes by another name or from a
// page of another origin, before anything else looks at it.
func (c *Console) guarded(h http.Handler) http.Handler {
	crossOrigin := http.NewCrossOriginProtection()
	crossOrigin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.refuse(w, r, relay.Errorf(relay.OriginNotAllowed, "a page of another origin may not do this"))
	}))
	h = crossOrigin.Handler(h)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		head := w.Header()
		head.Set("Content-Security-Policy", policy)
		head.Set("X-Content-Type-Options", "nosniff")
		head.Set("Referrer-Policy", "no-referrer")
		head.Set("Cache-Control", "no-store")
		head.Set("Cross-Origin-Resource-Policy", "same-origin")
		head.Set("Cross-Origin-Opener-Policy", "same-origin")
		if !c.config.TLS && !isLoopback(r.Host) && !c.isOwnName(r.Host) {
			http.Error(w, "This is not a name of this console: open the URL that it printed, or that relay console --print-url "+
				"prints. Its name changes with each start.", http.StatusMisdirectedRequest)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// isLoopback reports whether a Host header names this machine. A page of another site that
// leads its own name to this machine (DNS rebinding) has that name in its requests.
func isLoopback(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && ip.Unmap().IsLoopback()
}

// isOwnName reports whether a Host header has the console's own name. Other names under localhost are
// refused: who has one may serve a page by it.
func (c *Console) isOwnName(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return subtle.ConstantTimeCompare([]byte(strings.ToLower(host)), []byte(c.host)) == 1
}

// randomName makes a name of 80 random bits.
func randomName() string {
	var b [10]byte
	_, _ = rand.Read(b[:]) // never fails
	return strings.ToLower(base32.StdEncoding.EncodeToString(b[:]))
}

// random makes a text that nobody can guess.
func random() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// sessions are the browsers that were let in, by the hash of their cookie.
type sessions struct {
	mu  sync.Mutex
	end map[[sha256.Size]byte]time.Time
}

// begin makes a session, and gives its cookie's value.
func (s *sessions) begin(now time.Time) string {
	value := random()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end == nil {
		s.end = map[[sha256.Size]byte]time.Time{}
	}
	for len(s.end) >= maxSessions {
		var first [sha256.Size]byte
		for id, end := range s.end {
			if f, ok := s.end[first]; !ok || end.Before(f) {
				first = id
			}
		}
		delete(s.end, first)
	}
	s.end[sha256.Sum256([]byte(value))] = now.Add(sessionFor)
	return value
}

// has reports whether a cookie's value names a session that has not ended.
func (s *sessions) has(value string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := sha256.Sum256([]byte(value))
	end, ok := s.end[id]
	if ok && !now.Before(end) {
		delete(s.end, id)
	}
	return ok && now.Before(end)
}

func (s *sessions) drop(value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.end, sha256.Sum256([]byte(value)))
}

// failures bounds how often a client may be wrong: five times at once, then once in two
// seconds.
type failures struct {
	mu sync.Mutex
	of map[string]failed
}

type failed struct {
	n  float64
	at time.Time
}

const (
	failuresAtOnce = 5
	failuresEvery  = 2 * time.Second
	maxFailures    = 1024 // clients; the one that was wrong longest ago makes room
)

// full reports whether a client has been wrong too often.
func (f *failures) full(client string, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now(client, now) > failuresAtOnce-1
}

func (f *failures) add(client string, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.of == nil {
		f.of = map[string]failed{}
	}
	if _, known := f.of[client]; !known && len(f.of) >= maxFailures {
		delete(f.of, f.oldest())
	}
	f.of[client] = failed{f.now(client, now) + 1, now}
}

// oldest returns the client that was wrong longest ago. f.mu is held.
func (f *failures) oldest() (client string) {
	for c, last := range f.of {
		if first, found := f.of[client]; !found || last.at.Before(first.at) {
			client = c
		}
	}
	return client
}

// now is how many failures count against a client. f.mu is held.
func (f *failures) now(client string, now time.Time) float64 {
	last := f.of[client]
	return max(0, last.n-float64(now.Sub(last.at))/float64(failuresEvery))
}

// clientOf is whose failures count together: all of this machine, an IPv4 address, or the /64 of an
// IPv6 address, of which every customer of a provider has at least one.
func clientOf(remote string) string {
	at, err := netip.ParseAddrPort(remote) // set by the HTTP server
	if err != nil {
		return remote
	}
	a := at.Addr().Unmap().WithZone("")
	switch {
	case a.IsLoopback():
		return "this machine"
	case a.Is4():
		return a.String()
	}
	block, _ := a.Prefix(64)
	return block.String()
}

// cookieName differs by port, because browsers send the cookies of a host to all its ports.
func cookieName(r *http.Request) string {
	_, port, err := net.SplitHostPort(r.Host)
	if err != nil {
		port = "443"
	}
	return "relay_console_" + port
}

// knownFor is how long a browser that was let in keeps failures of its own.
const knownFor = 30 * 24 * time.Hour

// knownName is the name of the cookie of a browser that was let in since the console has started. Its failures
// count apart, so that nobody else's keep its owner out.
func knownName(r *http.Request) string { return cookieName(r) + "_known" }

// seal returns what only this console can add to a browser's number.
func (c *Console) seal(number string) string {
	h := hmac.New(sha256.New, c.known[:])
	h.Write([]byte(number))
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

// guesserOf is whose failures a request counts among: those of a browser that was let in before, or clientOf.
func (c *Console) guesserOf(r *http.Request) string {
	if cookie, err := r.Cookie(knownName(r)); err == nil {
		number, seal, _ := strings.Cut(cookie.Value, ".")
		if hmac.Equal([]byte(seal), []byte(c.seal(number))) {
			return "the browser " + number
		}
	}
	return clientOf(r.RemoteAddr)
}

// hasSession reports whether a request has the cookie of a session.
func (c *Console) hasSession(r *http.Request) bool {
	cookie, err := r.Cookie(cookieName(r))
	return err == nil && c.sessions.has(cookie.Value, c.config.Now())
}

// withSession lets only sessions through. A person gets the page that lets them in.
func (c *Console) withSession(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !c.hasSession(r) {
			c.signIn(w, r)
			return
		}
		h(w, r)
	}
}

// session answers a page that asks whether it has one.
func (c *Console) session(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusNoContent)
}

// enter makes a session for who sends the token or the password, in the field secret of a form.
// A token is too long to be guessed, so the right one always lets in, however many wrong ones came
// before it: else any program of this machine could lock out its owner. A password may be guessed:
// a client that was wrong too often is refused without a look at it. A browser that was let in before is a
// client of its own.
func (c *Console) enter(w http.ResponseWriter, r *http.Request) {
	client, now := c.guesserOf(r), c.config.Now()
	full := c.failures.full(client, now)
	r.Body = http.MaxBytesReader(w, r.Body, maxSecret)
	right := false
	if !full || c.config.Password == "" {
		given := sha256.Sum256([]byte(r.PostFormValue("secret")))
		right = subtle.ConstantTimeCompare(given[:], c.secret[:]) == 1
	}
	switch {
	case right:
	case full:
		w.Header().Set("Retry-After", "2")
		http.Error(w, "Too many wrong attempts. Wait a few seconds.", http.StatusTooManyRequests)
		return
	default:
		c.failures.add(client, now)
		c.config.Logger.Warn("console access refused", "client", client)
		http.Error(w, "That is not the one. The console prints its URL when it starts; "+
			"relay console --print-url prints it again.", http.StatusForbidden)
		return
	}
	http.SetCookie(w, &http.Cookie{Name: cookieName(r), Value: c.sessions.begin(now), Path: "/",
		MaxAge: int(sessionFor.Seconds()), HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: c.config.TLS})
	if number := random(); c.config.Password != "" && !strings.HasPrefix(client, "the browser") {
		http.SetCookie(w, &http.Cookie{Name: knownName(r), Value: number + "." + c.seal(number), Path: "/session",
			MaxAge: int(knownFor.Seconds()), HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: c.config.TLS})
	}
	w.WriteHeader(http.StatusNoContent)
}

// leave ends the session.
func (c *Console) leave(w http.ResponseWriter, r *http.Request) {
	if cookie, err := r.Cookie(cookieName(r)); err == nil {
		c.sessions.drop(cookie.Value)
	}
	http.SetCookie(w, &http.Cookie{Name: cookieName(r), Path: "/", MaxAge: -1, HttpOnly: true,
		SameSite: http.SameSiteStrictMode, Secure: c.config.TLS})
	http.Redirect(w, r, "/", http.StatusSeeOther)
}
