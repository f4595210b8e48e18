package client

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"hash"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"

	"relay/db/relay"
)

// Signer makes the headers that authenticate the requests of one Mecha (PROTOCOL §2): its key, the time, a
// nonce, and the signatures. A Client signs automatically; a Signer is for programs that send requests by other
// means. One goroutine at a time may use it.
type Signer struct {
	key    string
	secret string
	mac    hash.Hash
	random string // begins every nonce
	count  uint64 // ends it
	tail   []byte // |nonce|timestamp
	sum    []byte
}

// NewSigner makes a Signer for a key. secret is the signing secret that was issued with the key; if
// it is empty, the key signs. The error is a *ConfigError: the key is not valid in a header.
func NewSigner(key, secret string) (*Signer, error) {
	switch {
	case key == "":
		return nil, &ConfigError{"Key", "is empty"}
	case strings.ContainsFunc(key, unicode.IsControl):
		return nil, &ConfigError{"Key",
			"has a line break or another control character in it; a key is one line, as relay key create printed it"}
	}
	return newSigner(key, secret), nil
}

func newSigner(key, secret string) *Signer {
	if secret == "" {
		secret = key
	}
	return &Signer{key: key, secret: secret, mac: hmac.New(sha256.New, []byte(secret)), random: rand.Text()}
}

// Header returns the four headers of one request with this body.
func (s *Signer) Header(body []byte) http.Header {
	nonce, timestamp := s.sign(body)
	return http.Header{
		"X-Mecha-Key":         {s.key},
		"X-Request-Timestamp": {string(timestamp)},
		"X-Nonce":             {string(nonce)},
		"X-Signature":         {base64.StdEncoding.EncodeToString(s.sum)},
	}
}

// RequestHeader returns the headers of Header, and X-Request-Signature, which covers the method and the target,
// too: the path and the query, as they are in the request line that the relay gets.
func (s *Signer) RequestHeader(method, target string, body []byte) http.Header {
	h := s.Header(body)
	sum := relay.SignRequest(s.secret, method, target, body, h["X-Nonce"][0], h["X-Request-Timestamp"][0])
	h["X-Request-Signature"] = []string{base64.StdEncoding.EncodeToString(sum)}
	return h
}

// Append appends the headers of Header to b, as four lines of an HTTP/1.1 request. It does
// not allocate if b has room.
func (s *Signer) Append(b, body []byte) []byte {
	nonce, timestamp := s.sign(body)
	b = append(append(b, "X-Mecha-Key: "...), s.key...)
	b = append(append(b, "\r\nX-Request-Timestamp: "...), timestamp...)
	b = append(append(b, "\r\nX-Nonce: "...), nonce...)
	b = base64.StdEncoding.AppendEncode(append(b, "\r\nX-Signature: "...), s.sum)
	return append(b, "\r\n"...)
}

// AppendFrame appends a frame that sends a message over a socket (PROTOCOL §4, Messages
// from the client), signed, to b. message is the JSON object that a POST has as its body.
func (s *Signer) AppendFrame(b []byte, ref string, message []byte) []byte {
	nonce, timestamp := s.sign(message)
	b = relay.AppendString(append(b, `{"type":"send","ref":`...), ref)
	b = append(append(b, `,"message":`...), message...)
	b = append(append(b, `,"nonce":"`...), nonce...)
	b = append(append(b, `","timestamp":"`...), timestamp...)
	b = base64.StdEncoding.AppendEncode(append(b, `","signature":"`...), s.sum)
	return append(b, `"}`...)
}

// sign makes a fresh nonce, and leaves the signature in s.sum. The result is valid until the next call.
func (s *Signer) sign(body []byte) (nonce, timestamp []byte) {
	s.count++
	b := append(append(s.tail[:0], '|'), s.random...)
	b = strconv.AppendUint(b, s.count, 36)
	end := len(b)
	b = relay.AppendTime(append(b, '|'), time.Now())
	s.mac.Reset()
	s.mac.Write(body)
	s.mac.Write(b)
	s.tail, s.sum = b, s.mac.Sum(s.sum[:0])
	return b[1:end], b[end+1:]
}
