package relay

import (
	"crypto/sha256"
	"time"
	"unicode"
	"unicode/utf8"
)

// The defaults of optional fields (PROTOCOL §3, Send).
const (
	DefaultVersion  = "1.0"
	DefaultType     = "message"
	DefaultPriority = "normal"
)

// MaxWordBytes is the most bytes of a text that the store keeps as a word: a message type
// has 64 characters, each of up to 4 bytes in UTF-8.
const MaxWordBytes = maxType * utf8.UTFMax

// Limits of the fields of a message and of an acknowledgement (PROTOCOL §3).
const (
	maxVersion     = 32 // characters
	maxType        = 64
	maxPriority    = 32
	maxLabel       = 128     // of a client's label for a conversation, which are all ASCII
	maxCorrelation = 256     // bytes
	maxDetail      = 1 << 10 // bytes
	maxStatus      = 32
	maxClientTS    = 64
	maxTrace       = 512 // characters of each of traceparent and tracestate
)

// MaxAckBy is the longest time that a sender may give a recipient to acknowledge a
// message, and MaxMessages the most messages of a conversation that its founder may ask
// for (PROTOCOL §3, Send).
const (
	MaxAckBy    = 30 * 24 * time.Hour
	MaxMessages = 1_000_000
)

// SendMessage is the write that accepts a message (PROTOCOL §3, Send). Read or
// Validate must pass before the store takes it.
type SendMessage struct {
	At            time.Time
	Key           KeyNumber // the sender's key
	To            Address   // of a Mecha, or of a whole crew
	Version       string
	Type          string
	Priority      string
	Conversation  ConversationID // "": the message starts a conversation
	CorrelationID string         // "": none
	ExpiresAt     time.Time      // zero: never
	InReplyTo     MessageID      // the message that this one answers; "": none
	AckBy         time.Time      // the sender gets a receipt if it is not acknowledged by then; zero: never
	// message limit of the conversation that this message founds; 0 means ConversationLimit
	MaxMessages   int
	Trace         Trace  // kept and handed on, never interpreted
	Payload       []byte // a JSON object, kept byte for byte
	PayloadSHA256 [sha256.Size]byte
	Signed        bool // the relay verified the sender's signature
	Nonce         NonceHash
	Idempotency   IdempotencyKey // zero: none
	SearchID      SearchID       // the search by which the sender found the recipient; "": none

	// The machine that accepted the request has decided the fields below. All copies of
	// the store must use the same values.

	OnlyReplay bool // the nonce was used before: only a stored answer to the Idempotency-Key may be given
	DiskFull   bool // the disk has no room: likewise
	MaxPending int  // how many messages may be pending for the recipient; 0 means no limit
	// ConversationLimit is the message limit of conversations whose founder has set none;
	// 0 means no limit.
	ConversationLimit int
	MaxBroadcast      int // maximum number of recipients of a message to a crew; 0 disables such messages
	MaxBroadcastBytes int // maximum bytes of its payloads together
	// Sought has the words of the search SearchID, if the search is the sender's and
	// listed the recipient; else nil.
	Sought []string
}

// Trace has the headers by which programs follow a request through several services (W3C
// Trace Context). An omitted header is "".
type Trace struct{ Parent, State string }

// Keep takes the headers of a request. A header that is longer than 512 characters, or
// that has non-printable or non-ASCII characters, is left out: a send does not fail for
// it.
func (t *Trace) Keep(parent, state string) {
	if !isHeader(parent) || parent == "" {
		return // a tracestate has no meaning of its own
	}
	if t.Parent = parent; isHeader(state) {
		t.State = state
	}
}

func isHeader(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return len(s) <= maxTrace
}

func (m *SendMessage) When() time.Time { return m.At }

func (m *SendMessage) setTime(at time.Time) { m.At = at }

func (m *SendMessage) Size() int {
	if m.To.IsCrew() {
		return min(m.MaxBroadcast*max(len(m.Payload)+512, messageShare), m.MaxBroadcastBytes)
	}
	return len(m.Payload) + 512
}

// messageShare is the minimum size of each further message of a job. A transaction is bounded by
// its jobs, and by 16 KiB for each of them; a message to a crew and a claim are one job with many
// messages.
const messageShare = 16 << 10

func (m *SendMessage) kind() byte { return kindSendMessage }

func (m *SendMessage) fields(f *form) {
	f.time(&m.At)
	integer(f, &m.Key)
	text(f, &m.To)
	text(f, &m.Version)
	text(f, &m.Type)
	text(f, &m.Priority)
	text(f, &m.Conversation)
	text(f, &m.CorrelationID)
	f.time(&m.ExpiresAt)
	text(f, &m.InReplyTo)
	f.time(&m.AckBy)
	integer(f, &m.MaxMessages)
	text(f, &m.Trace.Parent)
	text(f, &m.Trace.State)
	f.blob(&m.Payload)
	f.hash(&m.PayloadSHA256)
	f.bool(&m.Signed)
	integer(f, &m.Nonce)
	f.int64(&m.Idempotency.Key)
	f.int64(&m.Idempotency.Body)
	f.bool(&m.OnlyReplay)
	f.bool(&m.DiskFull)
	integer(f, &m.MaxPending)
	integer(f, &m.ConversationLimit)
	integer(f, &m.MaxBroadcast)
	integer(f, &m.MaxBroadcastBytes)
	text(f, &m.SearchID)
	f.texts(&m.Sought)
}

// Sent is the answer to a SendMessage (PROTOCOL §3, Send).
type Sent struct {
	ID           MessageID
	Conversation ConversationID
	CreatedAt    time.Time
	Recipient    MechaNumber // 0 for a message to a crew
	IDs          []MessageID // of a message to a crew: the ids of all its messages, of which ID is the first; else nil
	Ahead        int         // how many messages were pending for the recipient before this one
	// with the error ConversationFull: the number of the conversation, if its founder has no receipt yet
	Full     int64
	Replayed bool // this is the stored answer to an earlier request with the same Idempotency-Key
}

// IdempotencyKey has the keyed hashes of a sender's Idempotency-Key and of the body
// that came with it (PROTOCOL §3, Idempotency-Key). db.DB.IdempotencyKey makes it.
type IdempotencyKey struct{ Key, Body int64 }

// Validate fills in the defaults and PayloadSHA256, and checks the fields that a sender
// sets, but not whether the recipient and the conversation exist. Each error names the
// field: InvalidRequest, InvalidTime.
func (m *SendMessage) Validate() error {
	setDefault(&m.Version, DefaultVersion)
	setDefault(&m.Type, DefaultType)
	setDefault(&m.Priority, DefaultPriority)
	switch {
	case utf8.RuneCountInString(m.Version) > maxVersion:
		return FieldErrorf(InvalidRequest, "version", "must be 1–32 characters")
	case !isPrintable(m.Type, maxType):
		return FieldErrorf(InvalidRequest, "message_type", "must be 1–64 characters without control characters")
	case !isPrintable(m.Priority, maxPriority):
		return FieldErrorf(InvalidRequest, "priority", "must be 1–32 characters without control characters")
	case len(m.CorrelationID) > maxCorrelation:
		return FieldErrorf(InvalidRequest, "correlation_id", "must be at most 256 bytes")
	case !m.ExpiresAt.IsZero() && !m.ExpiresAt.After(m.At):
		return errPast("expires_at", m.At)
	case m.MaxMessages < 0 || m.MaxMessages > MaxMessages:
		return FieldErrorf(InvalidRequest, "max_messages", "must be a whole number from 1 to %d", MaxMessages)
	case !m.AckBy.IsZero() && (m.AckBy.Sub(m.At) < time.Second || m.AckBy.Sub(m.At) > MaxAckBy):
		return FieldErrorf(InvalidRequest, "ack_by_seconds", "must be a whole number of seconds from 1 to %d",
			int64(MaxAckBy/time.Second))
	}
	if m.SearchID != "" && !m.SearchID.WellFormed() {
		return FieldErrorf(InvalidRequest, "search_id", "must be the request_id of a search: srch_ and 26 characters")
	}
	if err := m.Conversation.Check("conversation_id"); err != nil {
		return err
	}
	m.PayloadSHA256 = sha256.Sum256(m.Payload)
	return nil
}

func errPast(field string, now time.Time) error {
	return FieldErrorf(InvalidTime, field, "lies in the past: the relay's clock says %s", FormatTime(now))
}

// Check refuses an id that a conversation cannot have: InvalidRequest, with the name
// of the field. "" passes.
func (c ConversationID) Check(field string) error {
	if len(c) > maxLabel || !only(string(c), "._:~-") {
		return FieldErrorf(InvalidRequest, field, "must be 1–128 of A–Z a–z 0–9 . _ : ~ -")
	}
	return nil
}

func setDefault(s *string, value string) {
	if *s == "" {
		*s = value
	}
}

// isPrintable reports whether s is UTF-8 of up to limit characters, none of which is a
// control character (C0, DEL, C1).
func isPrintable(s string, limit int) bool {
	if len(s) > limit*utf8.UTFMax || !utf8.ValidString(s) {
		return false
	}
	n := 0
	for _, r := range s {
		n++
		if unicode.IsControl(r) {
			return false
		}
	}
	return n <= limit
}
