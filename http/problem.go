package http

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"relay/db/relay"
)

// statuses has the HTTP status of each code (PROTOCOL §6). A test fails if one is missing.
var statuses = map[relay.Code]int{
	relay.InvalidRequest: 400, relay.InvalidJSON: 400, relay.InvalidAddress: 400, relay.InvalidLimit: 400,
	relay.InvalidTime: 400, relay.InvalidIdempotencyKey: 400, relay.InvalidFrame: 400,

	relay.MissingHeader: 401, relay.MalformedHeader: 401, relay.MalformedKey: 401, relay.UnknownKey: 401,
	relay.KeyRevoked: 401, relay.KeyExpired: 401, relay.TimestampOutOfRange: 401,
	relay.SignatureRequired: 401, relay.InvalidSignature: 401, relay.NonceReused: 401, relay.InvalidTicket: 401,

	relay.SenderMismatch: 403, relay.NotYourMecha: 403, relay.NotAParty: 403, relay.RecipientOnly: 403,
	relay.NotAParticipant: 403, relay.OriginNotAllowed: 403, relay.NotYourSearch: 403,
	relay.BroadcastNotAllowed: 403, relay.NotAccepted: 403,

	relay.NotFound: 404, relay.MessageNotFound: 404, relay.RecipientNotFound: 404,
	relay.ConversationNotFound: 404, relay.CursorNotFound: 404, relay.MechaNotFound: 404, relay.SearchNotFound: 404,

	relay.MethodNotAllowed: 405, relay.RequestTimeout: 408, relay.AlreadyAcknowledged: 409, relay.TooManyAcks: 409,
	relay.MessageExpired: 409, relay.SearchExpired: 410,
	relay.PayloadTooLarge: 413, relay.UnsupportedEncoding: 415, relay.IdempotencyKeyReused: 422,
	relay.TooManyRecipients: 422, relay.UpgradeRequired: 426,
	relay.RateLimited: 429, relay.TooManyFailures: 429, relay.MailboxFull: 429, relay.ConversationFull: 429,
	relay.TooManySockets: 429,

	relay.Internal: 500, relay.StoreFailed: 500, relay.Overloaded: 503, relay.ShuttingDown: 503, relay.DatabaseLocked: 503,
	relay.NotCurrent: 503, relay.DiskFull: 507,
}

// Status returns the HTTP status of a code: 500 for an unknown one.
func Status(c relay.Code) int {
	if s, ok := statuses[c]; ok {
		return s
	}
	return http.StatusInternalServerError
}

func statusOf(err error) int {
	var e *relay.Error
	if errors.As(err, &e) && e.Code == relay.TooManySockets && e.Global {
		return http.StatusServiceUnavailable
	}
	return Status(relay.ErrorCode(err))
}

// problem is an error as a client sees it (PROTOCOL §6): a problem document of RFC
// 9457. error and message repeat code and detail for clients that look for those
// names.
type problem struct {
	Type       string             `json:"type"`
	Title      string             `json:"title"`
	Status     int                `json:"status"`
	Detail     string             `json:"detail"`
	Code       relay.Code         `json:"code"`
	Error      relay.Code         `json:"error"`
	Message    string             `json:"message"`
	RequestID  string             `json:"request_id"`
	Errors     []relay.FieldError `json:"errors,omitempty"`
	DidYouMean []relay.Address    `json:"did_you_mean,omitzero"`
	ServerTime string             `json:"server_time,omitempty"`
	Parts      []part             `json:"parts,omitempty"` // of /readyz
	Docs       string             `json:"docs"`
}

// Refuse writes err as the response. It is the only place where an error becomes
// one. The text of an error that is not a *relay.Error, and the cause of one that is,
// go to the log and never to the client.
func (s *Server) Refuse(w http.ResponseWriter, r *http.Request, err error) {
	s.refuseWith(w, r, err, nil)
}

// refuseWith is Refuse for /readyz, which also shows the parts of the relay.
func (s *Server) refuseWith(w http.ResponseWriter, r *http.Request, err error, parts []part) {
	id := w.Header()["X-Request-Id"][0]
	var e *relay.Error
	if !errors.As(err, &e) {
		if errors.Is(err, context.Canceled) && r.Context().Err() != nil {
			panic(http.ErrAbortHandler) // the client has gone or closed its side; to return here would send 200
		}
		e = relay.Errorf(relay.Internal, "the relay failed; its log has the cause under this request_id")
		e.Cause = err
	}
	if e.Cause != nil {
		s.config.Logger.Error("request failed", "request_id", id, "method", shown(r.Method), "path", shown(r.URL.Path),
			"client", s.client(r), "code", e.Code, "error", e.Cause)
	}
	s.measures.Refused.Add(string(e.Code))
	p := problem{
		Type: "/docs#" + string(e.Code), Title: title(e.Code), Status: statusOf(e), Detail: e.Detail,
		Code: e.Code, Error: e.Code, Message: e.Detail, RequestID: id,
		Errors: e.Fields, DidYouMean: e.DidYouMean, Parts: parts, Docs: "/docs#" + string(e.Code),
	}
	if e.Code == relay.RecipientNotFound && p.DidYouMean == nil {
		p.DidYouMean = []relay.Address{}
	}
	if !e.ServerTime.IsZero() {
		p.ServerTime = relay.FormatTime(e.ServerTime)
	}
	if r.ContentLength != 0 { // net/http reads the rest of the body before it answers
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(unreadBody))
	}
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	switch p.Status {
	case http.StatusUnauthorized:
		if h.Get("WWW-Authenticate") == "" {
			h.Set("WWW-Authenticate", "Mecha-Key")
		}
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		if e.Code == relay.ConversationFull { // waiting does not help
			break
		}
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(max(e.RetryAfter, time.Second).Seconds()))))
	case http.StatusUpgradeRequired:
		h.Set("Upgrade", "websocket")
		h.Add("Connection", "Upgrade") // perhaps with close
		h.Set("Sec-WebSocket-Version", "13")
	}
	body, _ := encode(p) // strings and numbers cannot fail
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(p.Status)
	w.Write(body)
}

// unreadBody is how long the body of a refused request may still take to arrive.
// Without it, a stranger could hold a connection for as long as any body may take.
const unreadBody = time.Second

var titleWords = strings.NewReplacer("_", " ", "json", "JSON", "mecha", "Mecha")

// title makes a code readable: invalid_json is "Invalid JSON".
func title(c relay.Code) string {
	s := titleWords.Replace(string(c))
	return strings.ToUpper(s[:1]) + s[1:]
}
