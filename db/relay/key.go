package relay

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"hash/crc32"
	"math/big"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// A KeyID names a key in lists and commands: `key_` and 16 random characters. It
// is not a secret.
type KeyID string

const (
	keyIDPrefix = "key_"
	keyIDChars  = 16
)

// WellFormed reports whether the id has the form of the ids that the relay issues.
func (id KeyID) WellFormed() bool { return isRandomID(keyIDPrefix, keyIDChars, string(id)) }

// A KeyNumber is the store's own number of a key. It never leaves the relay.
type KeyNumber int64

// Key is a Mecha key as the store knows it. The file has the SHA-256 of the
// key's text, not the text. A *Key from the store is shared between requests and
// must not be changed.
type Key struct {
	ID         KeyID
	Number     KeyNumber
	Mecha      Mecha
	Label      string
	CreatedAt  time.Time
	ExpiresAt  time.Time // zero: never
	RevokedAt  time.Time // zero: not revoked
	Ended      bool      // it was revoked, or the store has noted that it expired; then the clock does not matter
	LastUsedAt time.Time // as stored, up to about a minute late; zero: never
	Broadcast  bool      // it may write to all crews (PROTOCOL §3, To a crew)
	Secret     Secret    // "" if the key's own text signs
	Text       Secret    // as the client has shown it; "" for a key that was found by its id
}

// A Secret is a signing secret that a key has besides its text (PROTOCOL §2). If it
// is printed or logged, "(secret)" is shown; convert it to a string to get its text.
type Secret string

// WellFormed reports whether the secret has the form of the secrets that the relay issues.
func (s Secret) WellFormed() bool {
	const split = len(secretPrefix) + bodyChars
	return len(s) == split+crcChars && strings.HasPrefix(string(s), secretPrefix) &&
		checksum(string(s[:split])) == string(s[split:])
}

// String hides the secret from fmt and log.
func (Secret) String() string { return "(secret)" }

// GoString hides the secret from the verb %#v.
func (Secret) GoString() string { return "(secret)" }

// Check refuses a key that is revoked, or expired at now: KeyRevoked, KeyExpired.
func (k *Key) Check(now time.Time) error {
	if !k.RevokedAt.IsZero() { // even if RevokedAt lies ahead, since the clock may have been set back
		return Errorf(KeyRevoked, "the key %s has been revoked; ask for a new one (relay key create)", k.ID)
	}
	if k.Ended || !k.ExpiresAt.IsZero() && !now.Before(k.ExpiresAt) {
		return Errorf(KeyExpired, "the key %s expired at %s; ask for a new one (relay key create)",
			k.ID, FormatTime(k.ExpiresAt))
	}
	return nil
}

// Sign computes the signature of PROTOCOL §2: HMAC-SHA256 over body|nonce|timestamp.
func Sign(secret string, body []byte, nonce, timestamp string) []byte {
	return sign(secret, nil, body, nonce, timestamp)
}

// SignRequest computes the request signature of PROTOCOL §2: HMAC-SHA256 over
// METHOD|path?query|body|nonce|timestamp. target is the path with the query, as in the
// request line.
func SignRequest(secret, method, target string, body []byte, nonce, timestamp string) []byte {
	prefix := make([]byte, 0, 2+len(method)+len(target))
	prefix = append(append(append(append(prefix, method...), '|'), target...), '|')
	return sign(secret, prefix, body, nonce, timestamp)
}

func sign(secret string, prefix, body []byte, nonce, timestamp string) []byte {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(prefix)
	mac.Write(body)
	suffix := make([]byte, 0, 2+len(nonce)+len(timestamp))
	suffix = append(append(append(append(suffix, '|'), nonce...), '|'), timestamp...)
	mac.Write(suffix)
	return mac.Sum(nil)
}

// SigningSecret returns the secret with which the client signs (PROTOCOL §2): the key's
// text, unless the key has a separate one. It needs a key with its Text.
func (k *Key) SigningSecret() string {
	if k.Secret != "" {
		return string(k.Secret)
	}
	return string(k.Text)
}

// MaxClockSkew is the greatest value of the setting --clock-skew: how far a
// request's timestamp may be off (PROTOCOL §2).
const MaxClockSkew = 15 * time.Minute

// IsNonce reports whether s has the form of a nonce: 1–128 of A–Z a–z 0–9 . _ ~ : + /
// = - (PROTOCOL §2).
func IsNonce(s string) bool { return len(s) >= 1 && len(s) <= 128 && only(s, "._~:+/=-") }

// DecodeSignature reads the 32 bytes of a header with a signature, in standard or
// URL-safe Base64, padded or not (PROTOCOL §2). It returns false for any other text.
func DecodeSignature(s string) ([]byte, bool) {
	trimmed := strings.TrimSuffix(s, "=")
	if len(trimmed) != base64.RawStdEncoding.EncodedLen(sha256.Size) {
		return nil, false
	}
	enc := base64.RawStdEncoding
	if strings.ContainsAny(trimmed, "-_") {
		enc = base64.RawURLEncoding
	}
	sig, err := enc.Strict().DecodeString(trimmed)
	return sig, err == nil && len(sig) == sha256.Size // the length, since the decoder skips line ends
}

// The form of keys and secrets: a prefix, 256 random bits in base62, and a checksum over
// both. The checksum distinguishes a typo from an unknown key, and lets secret scanners
// verify a find.
const (
	keyPrefix    = "mk_"
	secretPrefix = "ms_"
	bodyChars    = 43 // 62^43 > 2^256
	crcChars     = 6  // 62^6 > 2^32
	base62       = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

// newSecret makes a key (mk_…) or a signing secret (ms_…).
func newSecret(prefix string) string {
	var b [32]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	s := prefix + toBase62(new(big.Int).SetBytes(b[:]), bodyChars)
	return s + checksum(s)
}

func checksum(s string) string {
	return toBase62(big.NewInt(int64(crc32.ChecksumIEEE([]byte(s)))), crcChars)
}

func toBase62(n *big.Int, width int) string {
	out := make([]byte, width)
	digit, sixtyTwo := new(big.Int), big.NewInt(62)
	for i := width - 1; i >= 0; i-- {
		n.DivMod(n, sixtyTwo, digit)
		out[i] = base62[digit.Int64()]
	}
	return string(out)
}

// CheckKeyText refuses a text that cannot be a key: MalformedKey. It does not ask
// the store whether the key exists.
func CheckKeyText(s string) error {
	if len(s) != len(keyPrefix)+bodyChars+crcChars || !strings.HasPrefix(s, keyPrefix) || !only(s[len(keyPrefix):], "") {
		return Errorf(MalformedKey, "the key is not of the form mk_ and 49 letters and digits")
	}
	split := len(keyPrefix) + bodyChars
	if checksum(s[:split]) != s[split:] {
		return Errorf(MalformedKey, "the key's checksum is wrong: it has a typing or copying mistake")
	}
	return nil
}

// IssueKey is the write that makes a key, and registers its Mecha if it is new.
// Complete must be called first; db.DB.Issue does it.
type IssueKey struct {
	At         time.Time
	Address    Address
	Label      string
	ExpiresAt  time.Time // zero: never
	WithSecret bool      // the key gets a separate signing secret
	Broadcast  bool      // the key may write to all crews
	// Replaces names a key of the same Mecha, which then ends at At + Overlap. ""
	// replaces none. If Replaces is set, Address, Label (unless given), lifetime,
	// WithSecret and Broadcast are copied from the old key.
	Replaces KeyID
	Overlap  time.Duration

	// Complete sets the fields below. The key's text is not part of the write.

	ID     KeyID
	Hash   [sha256.Size]byte // the SHA-256 of the key's text
	Secret Secret            // stored only if the key gets a signing secret
}

func (i *IssueKey) When() time.Time { return i.At }

func (i *IssueKey) setTime(at time.Time) { i.At = at }

func (i *IssueKey) Size() int { return 512 }

func (i *IssueKey) kind() byte { return kindIssueKey }

func (i *IssueKey) fields(f *form) {
	f.time(&i.At)
	text(f, &i.Address)
	text(f, &i.Label)
	f.time(&i.ExpiresAt)
	f.bool(&i.WithSecret)
	text(f, &i.Replaces)
	integer(f, &i.Overlap)
	text(f, &i.ID)
	f.hash(&i.Hash)
	text(f, &i.Secret)
	f.bool(&i.Broadcast)
}

// IssuedKey is a new key with its text and signing secret. They are shown once: the
// store does not keep the text.
type IssuedKey struct {
	*Key
	Text   string // mk_…
	Secret string // ms_…; "" if the key's text signs
}

// OperatorLabel is the label of the key with which the person at a console sends messages.
// Nobody knows the text of that key.
const OperatorLabel = "console"

// MaxKeyLabel is the most bytes that a key's label may have.
const MaxKeyLabel = 200

// Complete checks the fields and makes the key's text, id and signing secret. It
// returns the text. Errors: InvalidAddress, InvalidTime, InvalidRequest.
func (i *IssueKey) Complete() (keyText string, err error) {
	if i.Replaces == "" {
		if _, err := ParseAddress(string(i.Address)); err != nil {
			return "", err
		}
	}
	if !i.ExpiresAt.IsZero() && !i.ExpiresAt.After(i.At) {
		return "", errPast("expires_at", i.At)
	}
	if len(i.Label) > MaxKeyLabel {
		return "", FieldErrorf(InvalidRequest, "label", "must be at most %d bytes", MaxKeyLabel)
	}
	if strings.ContainsFunc(i.Label, unicode.IsControl) || !utf8.ValidString(i.Label) {
		return "", FieldErrorf(InvalidRequest, "label", "must be text without control characters")
	}
	keyText = newSecret(keyPrefix)
	i.ID, i.Hash, i.Secret = KeyID(randomID(keyIDPrefix, keyIDChars)), sha256.Sum256([]byte(keyText)),
		Secret(newSecret(secretPrefix))
	return keyText, nil
}

// RevokeKey is the write that revokes a key.
type RevokeKey struct {
	At time.Time
	ID KeyID
}

func (r *RevokeKey) When() time.Time { return r.At }

func (r *RevokeKey) setTime(at time.Time) { r.At = at }

func (r *RevokeKey) Size() int { return 64 }

func (r *RevokeKey) kind() byte { return kindRevokeKey }

func (r *RevokeKey) fields(f *form) {
	f.time(&r.At)
	text(f, &r.ID)
}
