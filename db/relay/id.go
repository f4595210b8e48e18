package relay

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"strings"
	"time"
)

// A Position is the place of a write in the commit order (PROTOCOL §1), and so of the
// message or receipt that the write made. Positions only grow. The upper bits are the
// Unix time in milliseconds at which the write was accepted. The lower twelve bits
// distinguish the writes of one millisecond. So created_at needs no column, time filters
// need no index, and created_at cannot decrease along the order.
type Position int64

// PositionBits is how many bits of a position distinguish the writes of one millisecond.
const PositionBits = 12

// MaxPosition is the greatest position that has a time, in the year 2527.
const MaxPosition = 1<<(44+PositionBits) - 1

// PositionAt returns the first position of t's millisecond. For times before 1970 it
// returns 0, and for times after 2527 the first position of the last millisecond.
func PositionAt(t time.Time) Position {
	ms := t.UnixMilli()
	return Position(min(max(ms, 0), 1<<44-1) << PositionBits)
}

// PositionFrom returns the first position that is not before t.
func PositionFrom(t time.Time) Position {
	if t.Nanosecond()%int(time.Millisecond) != 0 {
		t = t.Add(time.Millisecond)
	}
	return PositionAt(t)
}

// Time returns the time of a position, in UTC, in whole milliseconds.
func (p Position) Time() time.Time { return time.UnixMilli(int64(p >> PositionBits)).UTC() }

// A MessageID is `msg_` and 26 lower-case Crockford base32 characters (PROTOCOL
// §1): 56 bits of position, then 72 bits that are a keyed function of the position.
// Without the store's secret those are as good as random. With it the relay
// recognises its own ids without an index or a row, even of messages long removed.
type MessageID string

// A ConversationID (PROTOCOL §1) is `conv_` and 26 lower-case Crockford base32
// characters if the relay issued it, or a client's label of 1–128 of [A-Za-z0-9._:~-].
type ConversationID string

// Issued reports whether the id begins as the relay's own ids do. All other ids are
// labels of clients.
func (c ConversationID) Issued() bool { return strings.HasPrefix(string(c), conversationPrefix) }

const (
	messagePrefix      = "msg_"
	conversationPrefix = "conv_"
	searchPrefix       = "srch_"
)

// IDChars is how many characters follow the prefix of a message, conversation or
// search id.
const IDChars = 26

// The first byte of the AES block from which the keyed part of an id is made. Each
// kind of id has its own.
const (
	messageDomain      = 'm'
	conversationDomain = 'c'
)

// IDs makes the ids of one store and recognises them. It is safe for concurrent use.
type IDs struct {
	block  cipher.Block // AES-128 as a pseudo-random function of (kind, position)
	tags   cipher.Block // AES-128 for tags
	secret [32]byte     // keys the hashes of nonces and Idempotency-Keys
}

// NewIDs makes the IDs of the store with this secret. It returns an error only if
// AES is not available.
func NewIDs(secret []byte) (*IDs, error) {
	k := sha256.Sum256(append([]byte("relay id\x00"), secret...))
	block, err := aes.NewCipher(k[:16])
	if err != nil {
		return nil, err
	}
	k = sha256.Sum256(append([]byte("relay tag\x00"), secret...))
	tags, err := aes.NewCipher(k[:16])
	if err != nil {
		return nil, err
	}
	return &IDs{block: block, tags: tags, secret: sha256.Sum256(append([]byte("relay hash\x00"), secret...))}, nil
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

// Message returns the id of the message at a position.
func (s *IDs) Message(p Position) MessageID {
	return MessageID(encode(messagePrefix, s.raw(messageDomain, p)))
}

// Conversation returns the id of the conversation whose first message is at a position.
func (s *IDs) Conversation(p Position) ConversationID {
	return ConversationID(encode(conversationPrefix, s.raw(conversationDomain, p)))
}

// MessagePosition returns the position in a message id, and false for a text that
// this store never issued as a message id.
func (s *IDs) MessagePosition(id MessageID) (Position, bool) {
	return s.position(messagePrefix, messageDomain, string(id))
}

// Cursor is MessagePosition with an error: CursorNotFound.
func (s *IDs) Cursor(id MessageID) (Position, error) {
	p, ok := s.MessagePosition(id)
	if !ok {
		return 0, Errorf(CursorNotFound, "%s is not a message id that this relay issued", Quote(string(id)))
	}
	return p, nil
}

// ConversationPosition returns the position of the first message of a conversation,
// and false for a text that this store never issued as a conversation id.
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

// Hash is a keyed hash of a kind, a number and bytes, short enough for an integer
// column. Without the store's secret, nobody can construct a collision.
func (s *IDs) Hash(kind byte, id int64, part []byte) int64 {
	buf := make([]byte, 0, 256)
	buf = append(buf, s.secret[:]...)
	buf = append(buf, kind)
	buf = binary.BigEndian.AppendUint64(buf, uint64(id))
	buf = append(buf, part...)
	sum := sha256.Sum256(buf)
	return int64(binary.BigEndian.Uint64(sum[:8]))
}

// WordHash is the keyed hash by which a store finds a word, such as a client's label of a
// conversation.
func (s *IDs) WordHash(text string) int64 { return s.Hash('w', 0, []byte(text)) }

// A Tag is a keyed function of a list of texts: their CBC-MAC (ISO/IEC 9797-1), each with its length
// before it, under a key of the store. Lists of different lengths must not be compared. It costs much
// less than a Hash, above all if many lists begin in the same way. The zero Tag is the Tag of no text.
type Tag [aes.BlockSize]byte

// Extend adds a text to the list of a tag. Only one goroutine may use a tag, but several may
// use tags of one store.
func (s *IDs) Extend(t *Tag, text string) {
	binary.BigEndian.PutUint64(t[:8], binary.BigEndian.Uint64(t[:8])^uint64(len(text)))
	n := subtle.XORBytes(t[8:], t[8:], []byte(text))
	for s.tags.Encrypt(t[:], t[:]); n < len(text); s.tags.Encrypt(t[:], t[:]) {
		n += subtle.XORBytes(t[:], t[:], []byte(text[n:]))
	}
}

// Number returns 32 bits of a tag.
func (t *Tag) Number() uint32 { return binary.BigEndian.Uint32(t[:]) }

// crockford is Douglas Crockford's base32 alphabet in lower case. It has no
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

// encode writes 128 bits as 26 characters, the most significant bits first. The
// first character has 3 bits.
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

// decode is the inverse of encode. It accepts only texts that encode writes.
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

// WellFormed reports whether the id has the form of the ids that NewSearchID makes.
func (id SearchID) WellFormed() bool { return isRandomID(searchPrefix, IDChars, string(id)) }

// isRandomID reports whether id has the form of the ids that randomID makes.
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

// randomID returns prefix and n random characters of the Crockford alphabet, 5 bits each.
func randomID(prefix string, n int) string {
	b := make([]byte, n)
	rand.Read(b) // never fails (crypto/rand)
	for i := range b {
		b[i] = crockford[b[i]&31]
	}
	return prefix + string(b)
}

// A NonceHash is the keyed hash of a key and a nonce that the key used. Zero: no nonce.
type NonceHash int64

// A SearchID names a search (PROTOCOL §5): `srch_` and 26 random characters.
type SearchID string

// NewSearchID makes a SearchID of 130 random bits.
func NewSearchID() SearchID { return SearchID(randomID(searchPrefix, IDChars)) }

// SearchLife is how long the answer to a search is kept (PROTOCOL §5, Search result).
const SearchLife = time.Hour

// FoundLife is how long after a search a message may name it as its search_id (PROTOCOL §3,
// Send).
const FoundLife = 24 * time.Hour
