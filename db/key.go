package db

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"hash/crc32"
	"math/big"
	"strings"
	"sync/atomic"
	"time"
)

// A KeyID names a key in lists and commands; it is no secret.
type KeyID string

// Key is a Mecha key as the store knows it: the text itself is not in it, only
// its SHA-256 is stored. A *Key is shared between requests, and
// read-only but for the last-used time.
type Key struct {
	ID        KeyID
	Number    int64 // the store's own number; it keys limits and nonces
	Mecha     Mecha
	Label     string
	CreatedAt time.Time
	ExpiresAt time.Time     // zero: never
	RevokedAt time.Time     // zero: not revoked
	secret    string        // the separate signing secret; "" if the key's own text signs
	lastUsed  *atomic.Int64 // Unix ms; shared by all that the store knows of this key
}

// LastUsedAt is when the key last authenticated a request, to about a minute;
// zero if never. Safe for concurrent use.
func (k *Key) LastUsedAt() time.Time { return unixMilli(k.lastUsed.Load()) }

// HasSecret tells whether the key has a signing secret of its own.
func (k *Key) HasSecret() bool { return k.secret != "" }

// Check refuses a key that is revoked or expired at now: KeyRevoked, KeyExpired.
func (k *Key) Check(now time.Time) error {
	if !k.RevokedAt.IsZero() { // whatever the clock says: it may have stepped back
		return Errorf(KeyRevoked, "the key %s has been revoked; ask for a new one (relay key create)", k.ID)
	}
	if !k.ExpiresAt.IsZero() && !now.Before(k.ExpiresAt) {
		return Errorf(KeyExpired, "the key %s expired at %s; rotate it or ask for a new one", k.ID, FormatTime(k.ExpiresAt))
	}
	return nil
}

// Sign computes the signature of PROTOCOL §2: HMAC-SHA256 over body|nonce|timestamp.
func Sign(secret string, body []byte, nonce, timestamp string) []byte {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	tail := make([]byte, 0, 2+len(nonce)+len(timestamp))
	tail = append(append(append(append(tail, '|'), nonce...), '|'), timestamp...)
	mac.Write(tail)
	return mac.Sum(nil)
}

// Verify tells whether signature signs the request under the key. text is the
// key as the client sent it: it is the secret unless the key has its own.
// The comparison takes constant time.
func (k *Key) Verify(text string, signature, body []byte, nonce, timestamp string) bool {
	secret := text
	if k.secret != "" {
		secret = k.secret
	}
	return hmac.Equal(Sign(secret, body, nonce, timestamp), signature)
}

// DecodeSignature reads the 32 bytes of an X-Signature header: standard or
// URL-safe Base64, padded or not (PROTOCOL §2).
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
	return sig, err == nil && len(sig) == sha256.Size // line ends are skipped by the decoder
}

// The form of secrets: a prefix, 256 random bits in base62, and a checksum
// over both that tells a typo, and lets secret scanners verify a find.
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

// checkKeyText refuses a text that cannot be a key, without the store: MalformedKey.
func checkKeyText(s string) error {
	if len(s) != len(keyPrefix)+bodyChars+crcChars || !strings.HasPrefix(s, keyPrefix) || !only(s[len(keyPrefix):], "") {
		return Errorf(MalformedKey, "the key is not of the form mk_ and 49 letters and digits")
	}
	split := len(keyPrefix) + bodyChars
	if checksum(s[:split]) != s[split:] {
		return Errorf(MalformedKey, "the key's checksum is wrong: it has a typing or copying mistake")
	}
	return nil
}

func unixMilli(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
