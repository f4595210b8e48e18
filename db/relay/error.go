package relay

import (
	"errors"
	"fmt"
	"time"
)

// A Code is the stable, machine-readable name of a refusal (PROTOCOL §6). Clients branch
// on it; its sentence may change.
type Code string

// The codes. Codes lists them with their meaning; package http maps each to a status.
const (
	InvalidRequest        Code = "invalid_request"
	InvalidJSON           Code = "invalid_json"
	InvalidAddress        Code = "invalid_address"
	InvalidLimit          Code = "invalid_limit"
	InvalidTime           Code = "invalid_time"
	InvalidIdempotencyKey Code = "invalid_idempotency_key"
	InvalidFrame          Code = "invalid_frame"

	MissingHeader       Code = "missing_header"
	MalformedHeader     Code = "malformed_header"
	MalformedKey        Code = "malformed_key"
	UnknownKey          Code = "unknown_key"
	KeyRevoked          Code = "key_revoked"
	KeyExpired          Code = "key_expired"
	TimestampOutOfRange Code = "timestamp_out_of_range"
	SignatureRequired   Code = "signature_required"
	InvalidSignature    Code = "invalid_signature"
	NonceReused         Code = "nonce_reused"
	InvalidTicket       Code = "invalid_ticket"

	SenderMismatch   Code = "sender_mismatch"
	NotYourMecha     Code = "not_your_mecha"
	NotAParty        Code = "not_a_party"
	RecipientOnly    Code = "recipient_only"
	NotAParticipant  Code = "not_a_participant"
	OriginNotAllowed Code = "origin_not_allowed"
	NotYourSearch    Code = "not_your_search"

	BroadcastNotAllowed Code = "broadcast_not_allowed"
	NotAccepted         Code = "not_accepted"

	NotFound             Code = "not_found"
	MessageNotFound      Code = "message_not_found"
	RecipientNotFound    Code = "recipient_not_found"
	ConversationNotFound Code = "conversation_not_found"
	CursorNotFound       Code = "cursor_not_found"
	MechaNotFound        Code = "mecha_not_found"
	SearchNotFound       Code = "search_not_found"
	SearchExpired        Code = "search_expired"

	MethodNotAllowed     Code = "method_not_allowed"
	RequestTimeout       Code = "request_timeout"
	AlreadyAcknowledged  Code = "already_acknowledged"
	TooManyAcks          Code = "too_many_acks"
	MessageExpired       Code = "message_expired"
	PayloadTooLarge      Code = "payload_too_large"
	UnsupportedEncoding  Code = "unsupported_encoding"
	IdempotencyKeyReused Code = "idempotency_key_reused"
	TooManyRecipients    Code = "too_many_recipients"
	UpgradeRequired      Code = "upgrade_required"

	RateLimited      Code = "rate_limited"
	TooManyFailures  Code = "too_many_failures"
	MailboxFull      Code = "mailbox_full"
	ConversationFull Code = "conversation_full"
	TooManySockets   Code = "too_many_sockets"

	Internal       Code = "internal"
	Overloaded     Code = "overloaded"
	ShuttingDown   Code = "shutting_down"
	DatabaseLocked Code = "database_locked"
	NotCurrent     Code = "not_current"
	StoreFailed    Code = "store_failed"
	DiskFull       Code = "disk_full"
)

// CodeInfo explains one code to people. The page http/docs/errors.md shows it.
type CodeInfo struct {
	Code    Code
	Meaning string
}

// Codes is the one list of codes, in the order in which `relay errors` prints them.
var Codes = []CodeInfo{
	{InvalidRequest, "A field, parameter or path has a value that is not allowed; `errors` names each."},
	{InvalidJSON, "The body is not a single JSON object (RFC 8259): bad syntax, invalid UTF-8, a lone surrogate, " +
		"a duplicate or case-shifted top-level key, trailing data, or nesting over 64."},
	{InvalidAddress, "An address is not `<name>^<crew>` with 1–64 of [A-Za-z0-9._-] on each side, " +
		"starting with a letter or digit."},
	{InvalidLimit, "`limit` or `sync_limit` is not a whole number in range."},
	{InvalidTime, "A time is not RFC 3339, or is out of range (an expiry in the past)."},
	{InvalidIdempotencyKey, "`Idempotency-Key` is not 1–128 printable ASCII characters."},
	{InvalidFrame, "A WebSocket message is not a frame that the relay knows; the connection stays."},
	{MissingHeader, "X-Mecha-Key, X-Request-Timestamp or X-Nonce is missing; " +
		"in a frame that sends, `timestamp` or `nonce`."},
	{MalformedHeader, "An authentication header, or such a field of a frame, is malformed; `detail` says which and how."},
	{MalformedKey, "X-Mecha-Key is not a relay key: wrong length, alphabet or checksum. " +
		"Check for a typing or copying mistake."},
	{UnknownKey, "The key is well-formed, but this relay never issued it."},
	{KeyRevoked, "The key has been revoked."},
	{KeyExpired, "The key has expired."},
	{TimestampOutOfRange, "X-Request-Timestamp is too far from the relay's clock, or is before a start at which the " +
		"relay may have lost used nonces. `server_time` is the relay's time. Sign the request again."},
	{SignatureRequired, "This relay takes signed requests only. `detail` names the missing header: " +
		"X-Signature or X-Request-Signature."},
	{InvalidSignature, "X-Signature is not the HMAC-SHA256 of `body|nonce|timestamp` under the signing secret, " +
		"or X-Request-Signature is not the HMAC-SHA256 of `METHOD|path?query|body|nonce|timestamp`."},
	{NonceReused, "This key has used this nonce before; send a fresh one with every request. Nothing was written for " +
		"this one. HTTP libraries may repeat a request after a broken connection: sign it again, with the same " +
		"Idempotency-Key."},
	{InvalidTicket, "The ticket of a handshake is unknown, was used before, or is more than 30 seconds old. " +
		"Get another one."},
	{SenderMismatch, "`from` is not the address of the key."},
	{NotYourMecha, "The path names a Mecha other than the key's own."},
	{NotAParty, "Only the sender and the recipient may read this message."},
	{RecipientOnly, "Only the recipient may do this."},
	{NotAParticipant, "You have neither sent nor received a message in this conversation."},
	{OriginNotAllowed, "Pages of this origin may not open a WebSocket or use the API here; see --allow-origin."},
	{NotYourSearch, "Another Mecha asked for this search."},
	{BroadcastNotAllowed, "Only Mechas of a crew, and keys made with `relay key create --broadcast`, " +
		"may write to the whole crew; with --max-broadcast 0, nobody may."},
	{NotAccepted, "The recipient, or every Mecha of the crew, accepts only messages from the senders in `accept_from` " +
		"of its profile, and answers to its own messages."},
	{NotFound, "There is no such path."},
	{MessageNotFound, "There is no message with this id."},
	{RecipientNotFound, "No Mecha with this address is registered; `did_you_mean` may suggest one. For a crew: " +
		"it has no Mecha besides the sender."},
	{ConversationNotFound, "The relay has issued no such conversation id. Leave the field out to start a conversation, " +
		"or use a label of your own that does not start with conv_."},
	{CursorNotFound, "The cursor is not a message id that this relay issued."},
	{MechaNotFound, "There is no such Mecha, or it is not visible to you."},
	{SearchNotFound, "There is no search with this id."},
	{SearchExpired, "The result of this search expired after an hour. Search again."},
	{MethodNotAllowed, "The path does not take this method; see the Allow header."},
	{RequestTimeout, "The request body did not arrive in time."},
	{AlreadyAcknowledged, "The message already has a different final acknowledgement."},
	{TooManyAcks, "The message has had 1,000 acknowledgements that were not final; it now takes only `completed`, " +
		"`failed` or `rejected`."},
	{MessageExpired, "The message has expired; it can be read, but no longer acknowledged or delivered."},
	{PayloadTooLarge, "The request body is over its limit (--max-body), or all payloads of a message to a crew " +
		"together are over theirs."},
	{UnsupportedEncoding, "Content-Encoding is not supported: the signature covers the bytes as sent."},
	{IdempotencyKeyReused, "This Idempotency-Key was used before with another body."},
	{TooManyRecipients, "The crew has more Mechas besides the sender than one message may go to; " +
		"`detail` says how many. See --max-broadcast."},
	{UpgradeRequired, "This path speaks only WebSocket (RFC 6455, version 13)."},
	{RateLimited, "The key sent too many requests, or its pages looked through too many rows, or too much is in " +
		"progress for its Mecha: reads, writes, searches, arriving bodies, bytes in memory. `detail` says which; " +
		"wait for Retry-After."},
	{TooManyFailures, "Too many failed authentications from this IP address; wait for Retry-After. " +
		"Requests with good credentials are not affected."},
	{MailboxFull, "The recipient, or one Mecha of the crew (`detail` names it), has too many unacknowledged messages."},
	{ConversationFull, "The conversation has as many messages as its founder, or --conversation-limit, allows. " +
		"Waiting does not help: start another conversation."},
	{TooManySockets, "Too many sockets and long-polls: of this Mecha (429), or in all (503)."},
	{Internal, "The relay failed; its log has the cause under `request_id`. Whether a write was done is unknown: " +
		"retry with the same Idempotency-Key."},
	{Overloaded, "The relay is at one of its own limits; wait for Retry-After. Nothing was written."},
	{ShuttingDown, "The relay is stopping; try again in a moment. Nothing was written."},
	{DatabaseLocked, "Another process on the relay's machine holds the write lock of the database, such as a command " +
		"that was stopped during a write. Nothing was written; reads keep working. The relay's log names the process."},
	{NotCurrent, "This node of a cluster does not hear most of the other nodes, or is behind them. " +
		"It might not know of a new or revoked key, so it answers no reads, and no request whose key it does not know. " +
		"Ask another node, or wait for Retry-After."},
	{StoreFailed, "The store failed to commit. Whether the write was done is unknown: " +
		"retry with the same Idempotency-Key."},
	{DiskFull, "The disk, or the quota, is full: messages are not accepted, but can be read and acknowledged."},
}

// CodeNames returns the codes as strings, in the order of Codes.
func CodeNames() []string {
	names := make([]string, len(Codes))
	for i, c := range Codes {
		names[i] = string(c.Code)
	}
	return names
}

// FieldError names one faulty field of a request and says what is wrong with it.
type FieldError struct {
	Field  string `json:"field"`
	Reason string `json:"reason"`
}

// Error is a refusal that a client gets (PROTOCOL §6): a code for machines, a
// sentence for people. The cause is for the log only and never reaches a client.
type Error struct {
	Code       Code
	Detail     string // a sentence about this case
	Fields     []FieldError
	DidYouMean []Address     // with RecipientNotFound: similar addresses, the most similar first
	Looked     int           // with RecipientNotFound: how many addresses were compared for DidYouMean
	RetryAfter time.Duration // with codes of status 429 and 503: when to try again
	ServerTime time.Time     // with TimestampOutOfRange: the relay's time
	Global     bool          // with TooManySockets: the limit of all Mechas together is reached
	Cause      error         // or nil
}

// Error returns the code, the sentence and the cause, for the log.
func (e *Error) Error() string {
	if e.Cause != nil {
		return fmt.Sprintf("%s: %s: %v", e.Code, e.Detail, e.Cause)
	}
	return string(e.Code) + ": " + e.Detail
}

// Unwrap returns the cause to errors.Is and errors.As.
func (e *Error) Unwrap() error { return e.Cause }

// Errorf makes a refusal with a sentence.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Detail: fmt.Sprintf(format, args...)}
}

// FieldErrorf makes a refusal that names the faulty field. The sentence continues from
// the field's name, as in "must be a string".
func FieldErrorf(code Code, field, format string, args ...any) *Error {
	reason := fmt.Sprintf(format, args...)
	return &Error{Code: code, Detail: field + ": " + reason, Fields: []FieldError{{field, reason}}}
}

// ErrorCode returns the code of err: Internal if err is not an *Error and wraps none,
// "" for nil.
func ErrorCode(err error) Code {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return Internal
}
