package a2a

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"relay/db/relay"
)

const (
	maxBody   = 2 << 20  // bytes; more than a relay takes by default, as parts in A2A are larger
	smallBody = 64 << 10 // bytes, for which a body needs no place
)

func digest(token string) [32]byte { return sha256.Sum256([]byte(token)) }

// ServeHTTP answers at /a2a/NAME^CREW, at the path of a card below that, and, if one Mecha is
// offered alone, at the path of a card at the root.
func (d *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if !d.calledRightly(r.Host) {
		refuse(w, http.StatusMisdirectedRequest, "this gateway is for this machine: name it as localhost, 127.0.0.1 or [::1]")
		return
	}
	if o := r.Header.Get("Origin"); o != "" && !sameOrigin(o, r.Host) {
		refuse(w, http.StatusForbidden, "this gateway answers no pages of other origins")
		return
	}
	mecha, isCard, ok := d.route(r.URL.Path)
	if !ok {
		refuse(w, http.StatusNotFound, "there is nothing here: a Mecha is at /a2a/NAME^CREW, its card at /a2a/NAME^CREW"+
			cardPath)
		return
	}
	// Who names a Mecha by --offer shows its card to all; the card says that a token is needed.
	if !(isCard && d.named(mecha)) && !d.admits(r) {
		w.Header().Set("WWW-Authenticate", "Bearer")
		refuse(w, http.StatusUnauthorized, "the token of this gateway is missing or wrong: Authorization: Bearer TOKEN")
		return
	}
	method := http.MethodPost
	if isCard {
		method = http.MethodGet
	}
	if r.Method != method && !(isCard && r.Method == http.MethodHead) {
		w.Header().Set("Allow", method)
		refuse(w, http.StatusMethodNotAllowed, "only "+method+" is answered here")
		return
	}
	if isCard {
		d.answerCard(w, r, mecha)
		return
	}
	d.answerCall(w, r, mecha)
}

// calledRightly reports whether a request names the gateway as it is to be named.
func (d *Gateway) calledRightly(host string) bool {
	if !d.Local {
		return true
	}
	name := hostname(host)
	if u, err := url.Parse(d.URL); err == nil && strings.EqualFold(name, u.Hostname()) {
		return true
	}
	ip, err := netip.ParseAddr(name)
	return strings.EqualFold(name, "localhost") || err == nil && ip.IsLoopback()
}

// hostname returns a Host without its port and brackets.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name
	}
	return strings.Trim(host, "[]")
}

func sameOrigin(origin, host string) bool {
	u, err := url.Parse(origin)
	return err == nil && strings.EqualFold(u.Host, host)
}

// route says which Mecha a path means, and whether its card.
func (d *Gateway) route(path string) (a relay.Address, isCard, ok bool) {
	if path == cardPath && len(d.Offer) == 1 {
		return d.Offer[0], true, true
	}
	rest, ok := strings.CutPrefix(path, "/a2a/")
	rest, isCard = strings.CutSuffix(rest, cardPath)
	a, err := relay.ParseAddress(strings.TrimSuffix(rest, "/"))
	return a, isCard, ok && err == nil
}

// admits reports whether a request shows the token.
func (d *Gateway) admits(r *http.Request) bool {
	if d.Token == "" {
		return true
	}
	kind, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	got := digest(strings.TrimSpace(token))
	return strings.EqualFold(kind, "Bearer") && subtle.ConstantTimeCompare(got[:], d.token[:]) == 1
}

// send writes a whole answer of JSON.
func send(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTime)) // every server's connection has one
	w.WriteHeader(status)
	_, _ = w.Write(body) // an error means that the client has gone
}

// refuse answers an HTTP request that is not a call. Clients read it as an error of JSON-RPC.
func refuse(w http.ResponseWriter, status int, why string) {
	send(w, status, answer(json.RawMessage("null"), nil, &fault{Code: codeRequest, Message: why}))
}

// answerCall answers a request of JSON-RPC.
func (d *Gateway) answerCall(w http.ResponseWriter, r *http.Request, mecha relay.Address) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		refuse(w, http.StatusUnsupportedMediaType, "Content-Type must be application/json")
		return
	}
	body, ok := d.readBody(w, r)
	if !ok {
		return
	}
	c, f := readCall(body)
	if f == nil {
		f = checkVersion(r, c.method)
	}
	if f != nil {
		send(w, http.StatusOK, answer(c.id, nil, f))
		return
	}
	waits := c.waits() && d.waits.take()
	switch {
	case waits:
		defer d.waits.give()
	case c.streams() || !d.calls.take():
		refuseBusy(w)
		return
	default:
		defer d.calls.give()
	}
	if here, err := d.reaches(r.Context(), mecha); err != nil {
		send(w, http.StatusOK, answer(c.id, nil, faultOf(err)))
		return
	} else if !here {
		refuse(w, http.StatusNotFound, "there is no such Mecha at this gateway")
		return
	}
	result, streamed, err := d.call(w, r, c, mecha, waits)
	switch {
	case err != nil:
		send(w, http.StatusOK, answer(c.id, nil, faultOf(err)))
	case !streamed:
		send(w, http.StatusOK, answer(c.id, result, nil))
	}
}

// readBody reads the body of a call. If it cannot, it has answered.
func (d *Gateway) readBody(w http.ResponseWriter, r *http.Request) (body []byte, ok bool) {
	all := http.MaxBytesReader(w, r.Body, maxBody)
	body, err := io.ReadAll(io.LimitReader(all, smallBody))
	if err == nil && len(body) == smallBody {
		if !d.large.take() {
			refuseBusy(w)
			return nil, false
		}
		defer d.large.give()
		var rest []byte
		rest, err = io.ReadAll(all)
		body = append(body, rest...)
	}
	switch {
	case err == nil:
		return body, true
	case errors.As(err, new(*http.MaxBytesError)):
		refuse(w, http.StatusRequestEntityTooLarge, "a request has at most "+strconv.Itoa(maxBody)+" bytes")
	default:
		refuse(w, http.StatusBadRequest, "the request is not whole")
	}
	return nil, false
}

func refuseBusy(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	refuse(w, http.StatusServiceUnavailable, "too many requests are at this gateway; try again later")
}

// waits reports whether a call may wait for a task.
func (c call) waits() bool { return c.method == "SendMessage" || c.streams() }

// streams reports whether the answer to a call is a stream of events.
func (c call) streams() bool {
	return c.method == "SendStreamingMessage" || c.method == "SubscribeToTask"
}

// call carries a call out. SendMessage waits for the end of the task only if it has a place for that.
func (d *Gateway) call(
	w http.ResponseWriter, r *http.Request, c call, mecha relay.Address, waits bool,
) (result any, streamed bool, err error) {
	var f func(context.Context, relay.Address, json.RawMessage) (any, error)
	switch c.method {
	case "SendMessage":
		f = func(ctx context.Context, mecha relay.Address, params json.RawMessage) (any, error) {
			return d.sendMessage(ctx, mecha, params, waits)
		}
	case "GetTask":
		f = d.getTask
	case "ListTasks":
		f = d.listTasks
	case "CancelTask":
		f = d.cancelTask
	case "SendStreamingMessage":
		return nil, true, d.sendStreaming(w, r, c, mecha)
	case "SubscribeToTask":
		return nil, true, d.subscribe(w, r, c, mecha)
	case "CreateTaskPushNotificationConfig", "GetTaskPushNotificationConfig", "ListTaskPushNotificationConfigs",
		"DeleteTaskPushNotificationConfig":
		return nil, false, noPush()
	case "GetExtendedAgentCard":
		return nil, false, faultf(codeUnsupported, "UNSUPPORTED_OPERATION", "this gateway has only the public card")
	default:
		return nil, false, &fault{Code: codeMethod, Message: "there is no such method"}
	}
	result, err = f(r.Context(), mecha, c.params)
	return result, false, err
}

// checkVersion refuses other versions of the protocol. A request that names none means 0.3
// (§3.6.2), whose messages have another form. But its methods have other names, too, all with
// a slash: a method of 1.0 is taken without the header.
func checkVersion(r *http.Request, method string) *fault {
	given := strings.TrimSpace(r.Header.Get("A2A-Version"))
	if given == "" {
		given = r.URL.Query().Get("A2A-Version")
	}
	switch {
	case given == version, given == "" && !strings.Contains(method, "/"):
		return nil
	case given == "":
		given = "0.3"
	case len(given) > 16:
		given = given[:16] + "…"
	}
	return faultf(codeVersion, "VERSION_NOT_SUPPORTED",
		"this gateway speaks version %s of A2A (SendMessage, GetTask, CancelTask), and not %s", version, relay.Visible(given))
}
