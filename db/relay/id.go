package relay

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"strings"
	"time"
)

// A Position is the place of a message, or of a receipt, in the one commit
// order (PROTOCOL §1). Positions only grow. The upper bits are the Unix time
// in milliseconds at which it was accepted, the lower twelve tell apart what came in the same
// one: so created_at needs no column, time filters need no index, and
// created_at cannot decrease along the order.
type Position int64

const positionBits = 12

// MaxPosition is the greatest position that has a time, in the year 2527.
const MaxPosition = 1<<(44+positionBits) - 1

// PositionAt gives the first position of t's millisecond.
func PositionAt(t time.Time) Position {
	ms := t.UnixMilli()
	return Position(min(max(ms, 0), 1<<44-1) << positionBits)
}

// PositionFrom gives the first position that is not before t.
func PositionFrom(t time.Time) Position {
	if t.Nanosecond()%int(time.Millisecond) != 0 {
		t = t.Add(time.Millisecond)
	}
	return PositionAt(t)
}

// Time is the commit time, in UTC, with millisecond precision.
func (p Position) Time() time.Time { return time.UnixMilli(int64(p >> positionBits)).UTC() }

// A MessageID is `msg_` and 26 lower-case Crockford base32 characters: 56 bits
// of position, then 72 bits that are a keyed function of it. Without the
// store's secret they are as good as random; with it the relay knows its own
// IDs without an index or a row, even those of messages long removed.
type MessageID string

// A ConversationID is `conv_` and the same alphabet when the relay issued it,
// or a client's own label of 1–128 of [A-Za-z0-9._:~-].
type ConversationID string

// Issued tells whether the id has the form of those that the relay issues. All
// others are labels of clients.
func (c ConversationID) Issued() bool { return strings.HasPrefix(string(c), conversationPrefix) }

const (
	messagePrefix      = "msg_"
	conversationPrefix = "conv_"
	searchPrefix       = "srch_"
	IDChars            = 26
)

// The first byte of the block that the id tail is made of: one per kind of id.
const (
	messageDomain      = 'm'
	conversationDomain = 'c'
)

// IDs issues and recognises ids. It is safe for concurrent use.
type IDs struct {
	block  cipher.Block // AES-128 as a pseudo-random function of (kind, position)
	secret [32]byte     // keys the hashes of nonces and Idempotency-Keys
}

// NewIDs derives the two keys from the store's secret.
func NewIDs(secret []byte) (*IDs, error) {
	k := sha256.Sum256(append([]byte("relay id\x00"), secret...))
	block, err := aes.NewCipher(k[:16])
	if err != nil {
		return nil, err
	}
	return &IDs{block: block, secret: sha256.Sum256(append([]byte("relay hash\x00"), secret...))}, nil
}

func (s *IDs) raw(domain byte, p Position) (id [16]byte) {
	var in [16]byte
	in[0] = domain
	binary.BigEndian.PutUint64(in[8:], uint64(p))
	s.block.Encrypt(id[:], in[:])
	binary.BigEndian.PutUint64(in[:8], uint64(p)<<8)
	copy(id[:7], in[:7])
	return id
}

func (s *IDs) Message(p Position) MessageID {
	return MessageID(encode(messagePrefix, s.raw(messageDomain, p)))
}

func (s *IDs) Conversation(p Position) ConversationID {
	return ConversationID(encode(conversationPrefix, s.raw(conversationDomain, p)))
}

// MessagePosition gives the position behind an id, and false for a text that
// this store never issued as a message id.
func (s *IDs) MessagePosition(id MessageID) (Position, bool) {
	return s.position(messagePrefix, messageDomain, string(id))
}

// Cursor gives the position of a message id, or CursorNotFound for a text that
// this store never issued as one.
func (s *IDs) Cursor(id MessageID) (Position, error) {
	p, ok := s.MessagePosition(id)
	if !ok {
		return 0, Errorf(CursorNotFound, "%s is not a message id that this relay issued", Quote(string(id)))
	}
	return p, nil
}

func (s *IDs) ConversationPosition(id ConversationID) (Position, bool) {
	return s.position(conversationPrefix, conversationDomain, string(id))
}

func (s *IDs) position(prefix string, domain byte, id string) (Position, bool) {
	raw, ok := decode(prefix, id)
	if !ok {
		return 0, false
	}
	p := Position(binary.BigEndian.Uint64(raw[:8]) >> 8)
	return p, s.raw(domain, p) == raw
}

// Hash is a keyed hash of a kind and parts, short enough for an integer
// column. Nobody without the store's secret can aim at a collision.
func (s *IDs) Hash(kind byte, id int64, part []byte) int64 {
	buf := make([]byte, 0, 256)
	buf = append(buf, s.secret[:]...)
	buf = append(buf, kind)
	buf = binary.BigEndian.AppendUint64(buf, uint64(id))
	buf = append(buf, part...)
	sum := sha256.Sum256(buf)
	return int64(binary.BigEndian.Uint64(sum[:8]))
}

// crockford is Douglas Crockford's base32 alphabet in lower case: it has no
// i, l, o, u, and its text order is its number order.
const crockford = "0123456789abcdefghjkmnpqrstvwxyz"

var crockfordValue = func() (v [256]byte) {
	for i := range v {
		v[i] = 0xff
	}
	for i := range crockford {
		v[crockford[i]] = byte(i)
	}
	return v
}()

// encode writes 128 bits, most significant first, as 26 characters; the first carries 3 bits.
func encode(prefix string, raw [16]byte) string {
	var out [8 + IDChars]byte
	n := copy(out[:], prefix)
	hi, lo := binary.BigEndian.Uint64(raw[:8]), binary.BigEndian.Uint64(raw[8:])
	for i := IDChars - 1; i >= 0; i-- {
		out[n+i] = crockford[lo&31]
		lo = lo>>5 | hi<<59
		hi >>= 5
	}
	return string(out[:n+IDChars])
}

// decode is the inverse of encode and accepts only what encode writes.
func decode(prefix, id string) (raw [16]byte, ok bool) {
	if len(id) != len(prefix)+IDChars || id[:len(prefix)] != prefix || id[len(prefix)] > '7' {
		return raw, false
	}
	var hi, lo uint64
	for i := len(prefix); i < len(id); i++ {
		v := crockfordValue[id[i]]
		if v == 0xff {
			return raw, false
		}
		hi = hi<<5 | lo>>59
		lo = lo<<5 | uint64(v)
	}
	binary.BigEndian.PutUint64(raw[:8], hi)
	binary.BigEndian.PutUint64(raw[8:], lo)
	return raw, true
}

// WellFormed tells whether the id has the form of those that NewSearchID makes.
func (id SearchID) WellFormed() bool { return isRandomID(searchPrefix, IDChars, string(id)) }

// isRandomID tells whether id is one that randomID may have made.
func isRandomID(prefix string, n int, id string) bool {
	if len(id) != len(prefix)+n || !strings.HasPrefix(id, prefix) {
		return false
	}
	for i := len(prefix); i < len(id); i++ {
		if crockfordValue[id[i]] == 0xff {
			return false
		}
	}
	return true
}

// randomID gives prefix and n random characters of the Crockford alphabet, 5 bits each.
func randomID(prefix string, n int) string {
	b := make([]byte, n)
	rand.Read(b) // never fails (crypto/rand)
	for i := range b {
		b[i] = crockford[b[i]&31]
	}
	return prefix + string(b)
}

// A NonceHash stands for a key and a nonce that it used. Zero means none.
type NonceHash int64

// A SearchID names a search that was asked for: `srch_` and 26 random characters.
type SearchID string

// NewSearchID makes a SearchID. Nobody can guess it.
func NewSearchID() SearchID { return SearchID(randomID(searchPrefix, IDChars)) }

// SearchLife is how long the answer to a search is kept (PROTOCOL §5).
const SearchLife = time.Hour
