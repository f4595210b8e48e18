package documents

import (
	nethttp "net/http"

	"relay/db/relay"
)

// An operation is what the documents say of an endpoint, in addition to its row in the route table.
// A test holds each to what the endpoint does.
type operation struct {
	id         string       // OpenAPI's operationId
	section    string       // its place on the page "protocol"
	parameters []string     // names in components.json, in addition to those of the path and of requests with a key
	body       string       // the schema of the request's body; "": the endpoint reads none
	mayBeEmpty bool         // the request may come without the body
	answers    []success    // each status that is not a refusal
	refusals   []relay.Code // in addition to the ones of every request with a key
	example    string       // of a body; the page "api" shows it
	ticket     bool         // a ticket may stand for the key and its headers
	writes     bool         // the log of a cluster decides about it; else it reads
}

// A success is an answer that is not a refusal.
type success struct {
	status  int
	about   string
	schema  string   // of a JSON body; "": none
	media   []string // of a body that is not JSON
	headers []string // names in components.json, in addition to the ones of every answer
}

// everyAnswer has the headers of all answers but the 101 of a handshake.
var everyAnswer = []string{"X-Request-Id", "Cache-Control", "X-Content-Type-Options"}

// toPages has the further headers of answers under /api to pages whose origin is allowed.
var toPages = []string{"Access-Control-Allow-Origin", "Access-Control-Expose-Headers", "Vary"}

// pageHeaders are the headers of a page of the documentation.
var pageHeaders = []string{"Content-Security-Policy", "Referrer-Policy"}

// byStatus has the further headers of the refusals of a status (refuse).
var byStatus = map[int][]string{
	nethttp.StatusUnauthorized:       {"WWW-Authenticate"},
	nethttp.StatusMethodNotAllowed:   {"Allow"},
	nethttp.StatusUpgradeRequired:    {"Upgrade", "Connection", "Sec-WebSocket-Version"},
	nethttp.StatusTooManyRequests:    {"Retry-After"},
	nethttp.StatusServiceUnavailable: {"Retry-After"},
}

var (
	// withKey are the parameters of every request with a key, in addition to the key itself.
	withKey = []string{"X-Request-Timestamp", "X-Nonce", "X-Signature", "X-Request-Signature"}
	// refusedWithKey are the refusals of every request with a key.
	refusedWithKey = []relay.Code{
		relay.InvalidRequest,
		relay.MissingHeader, relay.MalformedHeader, relay.MalformedKey, relay.UnknownKey, relay.KeyRevoked, relay.KeyExpired,
		relay.TimestampOutOfRange, relay.SignatureRequired, relay.InvalidSignature, relay.NonceReused,
		relay.RequestTimeout, relay.PayloadTooLarge, relay.UnsupportedEncoding, relay.RateLimited, relay.TooManyFailures,
		relay.Internal, relay.Overloaded, relay.ShuttingDown, relay.NotCurrent,
	}
	// refusedWrite are the further refusals of a write that is waited for.
	refusedWrite = []relay.Code{relay.StoreFailed, relay.DatabaseLocked, relay.DiskFull}
	// refusedPage are the refusals of a page of messages.
	refusedPage = []relay.Code{relay.InvalidAddress, relay.InvalidLimit, relay.InvalidTime, relay.CursorNotFound,
		relay.TooManySockets}

	pageParameters = []string{"limit", "since", "until", "since_message_id", "before_message_id", "order",
		"direction", "state", "conversation_id", "peer", "message_type", "priority", "include", "wait"}
)

func also(all []relay.Code, more ...relay.Code) []relay.Code {
	return append(append([]relay.Code(nil), all...), more...)
}

// onlyOK is the one answer of most operations.
func onlyOK(about, schema string) []success {
	return []success{{status: nethttp.StatusOK, about: about, schema: schema}}
}

// operations has what the documents say of each row of the route table, by its method
// and path.
var operations = map[string]operation{
	"GET /api/v1/whoami": {id: "whoami", section: "whoami", answers: onlyOK("The key, and the relay's clock.", "Whoami")},

	"POST /api/v1/messages": {
		id: "send", writes: true, section: "send",
		parameters: []string{"Idempotency-Key", "Prefer", "traceparent", "tracestate"}, body: "Letter",
		answers: []success{{status: nethttp.StatusCreated, about: "The message is on disk.", schema: "Sent",
			headers: []string{"Idempotent-Replayed", "Preference-Applied"}}},
		refusals: also(refusedWrite, relay.InvalidJSON, relay.InvalidAddress, relay.InvalidTime, relay.InvalidIdempotencyKey,
			relay.SenderMismatch, relay.NotAParticipant, relay.RecipientNotFound, relay.ConversationNotFound,
			relay.IdempotencyKeyReused, relay.MailboxFull, relay.ConversationFull, relay.MessageNotFound, relay.NotAParty,
			relay.NotAccepted, relay.BroadcastNotAllowed, relay.TooManyRecipients),
		example: `{"to":"alice^demo","payload":{"text":"hello"}}`,
	},
	"GET /api/v1/messages/{messageId}": {
		id: "getMessage", section: "get-message", answers: onlyOK("The record.", "Record"),
		refusals: []relay.Code{relay.NotAParty, relay.MessageNotFound},
	},
	"GET /api/v1/messages/{messageId}/payload": {
		id: "getPayload", section: "get-payload", answers: onlyOK("The payload, byte for byte as it was sent.", "Object"),
		refusals: []relay.Code{relay.RecipientOnly, relay.MessageNotFound},
	},
	"GET /api/v1/messages/{messageId}/trace": {
		id: "trace", section: "trace", answers: onlyOK("The life of the message, and the verdict.", "Trace"),
		refusals: []relay.Code{relay.NotAParty, relay.MessageNotFound},
	},
	"POST /api/v1/messages/{messageId}/ack": {
		id: "acknowledge", writes: true, section: "ack", body: "Ack",
		answers: onlyOK("The acknowledgement is on disk.", "AckOutcome"),
		refusals: also(refusedWrite, relay.InvalidJSON, relay.InvalidTime, relay.RecipientOnly, relay.MessageNotFound,
			relay.AlreadyAcknowledged, relay.TooManyAcks, relay.MessageExpired),
		example: `{"status":"completed","client_ts":"2026-11-22T08:16:00Z"}`,
	},
	"POST /api/v1/messages/{messageId}/deliver": {
		id: "markDelivered", writes: true, section: "mark-delivered",
		answers:  onlyOK("The message is delivered, or was before.", "Delivered"),
		refusals: also(refusedWrite, relay.RecipientOnly, relay.MessageNotFound, relay.MessageExpired),
	},

	"GET /api/v1/mecha/{mechaId}/messages": {
		id: "history", section: "history", parameters: pageParameters, answers: onlyOK("A page of records.", "Page"),
		refusals: also(refusedPage, relay.NotYourMecha),
	},
	"GET /api/v1/mecha/{mechaId}/inbox": {
		id: "inbox", section: "inbox-count", parameters: []string{"If-None-Match"},
		answers: []success{
			{status: nethttp.StatusOK, about: "The count.", schema: "Inbox", headers: []string{"ETag"}},
			{status: nethttp.StatusNotModified, about: "Nothing has changed since the answer with this ETag.",
				headers: []string{"ETag"}},
		},
		refusals: []relay.Code{relay.InvalidAddress, relay.NotYourMecha},
	},
	"POST /api/v1/mecha/{mechaId}/claim": {
		id: "claim", writes: true, section: "claim", body: "Claim", mayBeEmpty: true,
		answers: onlyOK("The messages, each with a lease. There may be none.", "Claimed"),
		refusals: also(refusedWrite, relay.InvalidJSON, relay.InvalidAddress, relay.InvalidLimit, relay.NotYourMecha,
			relay.TooManySockets),
		example: `{"limit":1,"lease_seconds":60,"worker":"w1"}`,
	},
	"GET /api/v1/ws/mecha/{mechaId}": {
		id: "connect", section: "4-websocket", ticket: true,
		parameters: []string{"since_message_id", "sync_limit", "events", "ticket", "Connection", "Upgrade",
			"Sec-WebSocket-Version", "Sec-WebSocket-Key", "Origin"},
		answers: []success{{status: nethttp.StatusSwitchingProtocols,
			about:   "The connection is a WebSocket now; /asyncapi.json describes its frames.",
			headers: []string{"Upgrade", "Connection", "Sec-WebSocket-Accept"}}},
		refusals: []relay.Code{relay.InvalidAddress, relay.InvalidLimit, relay.InvalidTicket, relay.NotYourMecha,
			// the last in a cluster: its log takes the nonce
			relay.OriginNotAllowed, relay.CursorNotFound, relay.UpgradeRequired, relay.TooManySockets, relay.StoreFailed},
	},
	"POST /api/v1/mecha/{mechaId}/ticket": {
		id: "ticket", section: "tickets",
		answers: []success{{status: nethttp.StatusCreated,
			about: "The ticket. It opens one WebSocket of this Mecha, within 30 seconds.", schema: "Ticket"}},
		refusals: []relay.Code{relay.InvalidAddress, relay.NotYourMecha, relay.StoreFailed}, // as for connect
	},
	"GET /api/v1/conversations/{conversationId}/messages": {
		id: "conversation", section: "conversation", parameters: pageParameters,
		answers:  onlyOK("A page of records.", "Page"),
		refusals: also(refusedPage, relay.NotAParticipant, relay.ConversationNotFound),
	},

	"GET /api/v1/mecha/{mechaId}/profile": {
		id: "getProfile", section: "profile", answers: onlyOK("The profile.", "ShownProfile"),
		refusals: []relay.Code{relay.InvalidAddress, relay.MechaNotFound},
	},
	"PUT /api/v1/mecha/{mechaId}/profile": {
		id: "putProfile", writes: true, section: "profile", body: "Profile",
		answers:  onlyOK("The new profile is on disk.", "ShownProfile"),
		refusals: also(refusedWrite, relay.InvalidJSON, relay.InvalidAddress, relay.NotYourMecha, relay.MechaNotFound),
		example:  `{"description":"books flights","tags":["travel/flights"]}`,
	},
	"POST /api/v1/search": {
		id: "search", section: "search", parameters: []string{"Prefer"}, body: "Search",
		answers: []success{
			{status: nethttp.StatusOK, about: "With Prefer: wait=1, the result.", schema: "SearchResult",
				headers: []string{"Location", "Preference-Applied"}},
			{status: nethttp.StatusAccepted, about: "The result can be fetched.", schema: "SearchAccepted",
				headers: []string{"Location"}},
		},
		refusals: []relay.Code{relay.InvalidJSON, relay.InvalidLimit, relay.InvalidTime},
		example:  `{"query":"book a flight"}`,
	},
	"GET /api/v1/search/{requestId}": {
		id: "getSearch", section: "search-result", answers: onlyOK("The result.", "SearchResult"),
		refusals: []relay.Code{relay.NotYourSearch, relay.SearchNotFound, relay.SearchExpired},
	},

	"GET /livez": {id: "livez", section: "9-around-the-api", answers: onlyOK("The process runs.", "Live")},
	"GET /readyz": {
		id: "readyz", section: "9-around-the-api", answers: onlyOK("Requests are answered.", "Ready"),
		refusals: []relay.Code{relay.Overloaded, relay.ShuttingDown, relay.DatabaseLocked, relay.NotCurrent},
	},
	"GET /metrics": {
		id: "metrics", section: "9-around-the-api",
		answers: []success{{status: nethttp.StatusOK, about: "Measurements, for programs on the relay's own machine.",
			media: []string{"text/plain", "application/vnd.google.protobuf"}}},
		refusals: []relay.Code{relay.NotFound},
	},
	"GET /version":      {id: "version", section: "9-around-the-api", answers: onlyOK("The version.", "Version")},
	"GET /openapi.json": {id: "openapi", section: "9-around-the-api", answers: onlyOK("This document.", "Object")},
	"GET /asyncapi.json": {id: "asyncapi", section: "9-around-the-api",
		answers: onlyOK("The frames of the WebSocket.", "Object")},
	"GET /": {
		id: "root", section: "9-around-the-api",
		answers: []success{{status: nethttp.StatusFound, about: "On to /docs.", media: []string{"text/html"},
			headers: []string{"Location"}}},
	},
	"GET /docs": {
		id: "docs", section: "9-around-the-api",
		answers: []success{{status: nethttp.StatusOK, about: "The list of the pages.", media: []string{"text/html"},
			headers: pageHeaders}},
	},
	"GET /docs/{page}": {
		id: "docsPage", section: "9-around-the-api",
		answers: []success{
			{status: nethttp.StatusOK, about: "The page, or the picture.",
				media: []string{"text/html", "text/markdown", "image/png"}, headers: pageHeaders},
		},
		refusals: []relay.Code{relay.NotFound},
	},
}
