package http

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"relay/db"
)

// statuses has the HTTP status of each code (PROTOCOL §6). A test fails if one is missing.
var statuses = map[db.Code]int{
	db.InvalidRequest: 400, db.InvalidJSON: 400, db.InvalidAddress: 400, db.InvalidLimit: 400,
	db.InvalidTime: 400, db.InvalidIdempotencyKey: 400, db.InvalidFrame: 400,

	db.MissingHeader: 401, db.MalformedHeader: 401, db.MalformedKey: 401, db.UnknownKey: 401,
	db.KeyRevoked: 401, db.KeyExpired: 401, db.TimestampOutOfRange: 401,
	db.SignatureRequired: 401, db.InvalidSignature: 401, db.NonceReused: 401,

	db.SenderMismatch: 403, db.NotYourMecha: 403, db.NotAParty: 403, db.RecipientOnly: 403,
	db.NotAParticipant: 403, db.OriginNotAllowed: 403, db.NotYourSearch: 403,

	db.NotFound: 404, db.MessageNotFound: 404, db.RecipientNotFound: 404,
	db.ConversationNotFound: 404, db.CursorNotFound: 404, db.MechaNotFound: 404, db.SearchNotFound: 404,

	db.MethodNotAllowed: 405, db.RequestTimeout: 408, db.AlreadyAcknowledged: 409, db.MessageExpired: 409, db.SearchExpired: 410,
	db.PayloadTooLarge: 413, db.UnsupportedEncoding: 415, db.IdempotencyKeyReused: 422, db.UpgradeRequired: 426,
	db.RateLimited: 429, db.TooManyFailures: 429, db.MailboxFull: 429, db.TooManySockets: 429,

	db.Internal: 500, db.StoreFailed: 500, db.Overloaded: 503, db.ShuttingDown: 503, db.DiskFull: 507,
}

// Status returns the HTTP status of a code: 500 for an unknown one.
func Status(c db.Code) int {
	if s, ok := statuses[c]; ok {
		return s
	}
	return http.StatusInternalServerError
}

func statusOf(err error) int {
	var e *db.Error
	if errors.As(err, &e) && e.Code == db.TooManySockets && e.Global {
		return http.StatusServiceUnavailable
	}
	return Status(db.ErrorCode(err))
}

// problem is an error as a client sees it (PROTOCOL §6): a problem document of RFC
// 9457. error and message repeat code and detail for clients that look for those
// names.
type problem struct {
	Type       string          `json:"type"`
	Title      string          `json:"title"`
	Status     int             `json:"status"`
	Detail     string          `json:"detail"`
	Code       db.Code         `json:"code"`
	Error      db.Code         `json:"error"`
	Message    string          `json:"message"`
	RequestID  string          `json:"request_id"`
	Errors     []db.FieldError `json:"errors,omitempty"`
	DidYouMean []db.Address    `json:"did_you_mean,omitzero"`
	ServerTime string          `json:"server_time,omitempty"`
	Docs       string          `json:"docs"`
}

// refuse writes err as the response. It is the only place where an error becomes
// one. The text of an error that is not a *db.Error, and the cause of one that is,
// go to the log and never to the client.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	id := w.Header()["X-Request-Id"][0]
	var e *db.Error
	if !errors.As(err, &e) {
		if errors.Is(err, context.Canceled) && r.Context().Err() != nil {
			panic(http.ErrAbortHandler) // the client has gone or closed its side; to return here would send 200
		}
		e = db.Errorf(db.Internal, "the relay failed; its log has the cause under this request_id")
		e.Cause = err
	}
	if e.Cause != nil {
		s.config.Logger.Error("request failed", "request_id", id, "method", r.Method, "path", r.URL.Path, "client", s.client(r), "code", e.Code, "error", e.Cause)
	}
	p := problem{
		Type: "/docs#" + string(e.Code), Title: title(e.Code), Status: statusOf(e), Detail: e.Detail,
		Code: e.Code, Error: e.Code, Message: e.Detail, RequestID: id,
		Errors: e.Fields, DidYouMean: e.DidYouMean, Docs: "/docs#" + string(e.Code),
	}
	if e.Code == db.RecipientNotFound && p.DidYouMean == nil {
		p.DidYouMean = []db.Address{}
	}
	if !e.ServerTime.IsZero() {
		p.ServerTime = db.FormatTime(e.ServerTime)
	}
	if r.ContentLength != 0 { // net/http reads the rest of the body before it answers
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(unreadBody))
	}
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	switch p.Status {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", "Mecha-Key")
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		h.Set("Retry-After", strconv.Itoa(int(max(e.RetryAfter, time.Second)/time.Second)))
	case http.StatusUpgradeRequired:
		h.Set("Upgrade", "websocket")
		h.Set("Connection", "Upgrade")
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
func title(c db.Code) string {
	s := titleWords.Replace(string(c))
	return strings.ToUpper(s[:1]) + s[1:]
}
