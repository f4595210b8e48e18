package http

import (
	"context"
	"crypto/hmac"
	"time"

	"relay/db/relay"
	"relay/db/turn"
)

// sender is the relay.Sender of a server: it accepts the messages of sockets. The headers of a request are, in
// a frame, in its fields.
type sender struct{ *Server }

// maxFrame is how many bytes a frame may have where nothing limits a body.
const maxFrame = 1 << 30

// MaxFrame implements relay.Sender.
func (s sender) MaxFrame() int {
	if s.config.MaxBody <= 0 {
		return maxFrame
	}
	return int(min(s.config.MaxBody, maxFrame))
}

// Hold implements relay.Sender. A message of unknown length is counted, like a body of
// unknown length, with all that it may become: if it were counted bit by bit, messages
// that wait for each other would each keep what they have.
func (s sender) Hold(m relay.MechaNumber, n int, last bool) (held int, room <-chan struct{}) {
	if n <= smallEnough {
		return 0, nil // it is not counted, unless it becomes longer
	}
	if !last && s.config.MaxBody > 0 {
		n = max(s.MaxFrame(), largeBody) // a frame of another type may have as many bytes
	}
	return n, s.memory.takeLater(m, int64(n))
}

// Release implements relay.Sender.
func (s sender) Release(m relay.MechaNumber, held int) { s.memory.give(m, int64(held)) }

// BeginLarge implements relay.Sender.
func (s sender) BeginLarge(m relay.MechaNumber) {
	_ = s.largeBodies.Take(context.Background(), m, turn.Unbounded) // no error, for the context does not end
}

// EndLarge implements relay.Sender.
func (s sender) EndLarge(m relay.MechaNumber) { s.largeBodies.Give(m) }

// Charge implements relay.Sender.
func (s sender) Charge(k relay.KeyNumber) time.Duration { return s.keys.reserve(k, s.config.Now()) }

// SendFrame implements relay.Sender. The checks come in the order of those of a request
// (PROTOCOL §2).
func (s sender) SendFrame(k *relay.Key, l *relay.SendFrame, done func(answer []byte, err error)) {
	in := &input{at: s.config.Now(), key: k, body: l.Message}
	end := func(sent relay.Sent, err error) {
		in.done()
		if err != nil {
			s.chargeScan(k, err)
			done(nil, err)
			return
		}
		s.keys.charge(k.Number, len(sent.IDs)-1, s.config.Now())
		done(s.sentFields(k, sent), nil)
	}
	m, sent, err := s.accept(in, l)
	if err != nil || m == nil {
		end(sent, err)
		return
	}
	// The answer tells of the recipient. That is read now, and not in the writer's goroutine.
	_ = s.config.DB.LearnPresence(context.Background(), k.Mecha, m.To)
	s.config.DB.SendThen(m, end)
}

// accept checks a message in the same way as a request. If the client sent it before,
// m is nil, and sent is what the client has missed.
func (s sender) accept(in *input, l *relay.SendFrame) (m *relay.SendMessage, sent relay.Sent, err error) {
	if limit := s.config.MaxBody; limit > 0 && int64(len(l.Message)) > limit {
		return nil, sent, relay.Errorf(relay.PayloadTooLarge, "the message is longer than the limit of %d bytes", limit)
	}
	if err := s.verifyLetter(in, l); err != nil {
		return nil, sent, err
	}
	if l.IdempotencyKey != "" {
		if !isIdempotencyKey(l.IdempotencyKey) {
			return nil, sent, relay.FieldErrorf(relay.InvalidIdempotencyKey, "idempotency_key",
				"must have 1–128 printable ASCII characters")
		}
		if err := s.beginOnce(context.Background(), in, l.IdempotencyKey); err != nil {
			return nil, sent, err
		}
	}
	if in.nonce != "" {
		if err := s.claimNonce(in, l.IdempotencyKey != ""); err != nil {
			return nil, sent, err
		}
	}
	return s.readMessage(in)
}

// verifyLetter checks the nonce, the timestamp and the signature of a frame. A frame
// needs none of them, because its socket was opened with the key, unless this server
// accepts signed requests only.
func (s sender) verifyLetter(in *input, l *relay.SendFrame) error {
	required := s.config.RequireSignature || s.config.RequireRequestSignature
	if !required && l.Nonce+l.Timestamp+l.Signature == "" {
		return nil
	}
	switch {
	case l.Signature == "" && required:
		return relay.Errorf(relay.SignatureRequired,
			"this relay accepts signed messages only; send signature, with nonce and timestamp")
	case l.Nonce == "" || l.Timestamp == "":
		return relay.Errorf(relay.MissingHeader,
			"nonce or timestamp is missing; a frame with a signature has both, and one with either has the other, too")
	}
	if err := checkNonce("nonce", l.Nonce); err != nil {
		return err
	}
	if err := s.checkTimestamp("timestamp", in, l.Timestamp); err != nil {
		return err
	}
	in.nonce = l.Nonce
	if l.Signature == "" {
		return nil
	}
	signature, err := decodeSignature("signature", l.Signature)
	if err != nil {
		return err
	}
	if !hmac.Equal(signature, relay.Sign(in.key.SigningSecret(), in.body, in.nonce, l.Timestamp)) {
		return relay.Errorf(relay.InvalidSignature, "signature is not the HMAC-SHA256 of message|nonce|timestamp under "+
			"this key's signing secret; message is its bytes exactly as in the frame")
	}
	in.signed = true
	return nil
}

// sentFields returns the answer to a frame: the body of a 201, and whether it is a stored one,
// which an answer over HTTP has in a header.
func (s sender) sentFields(k *relay.Key, sent relay.Sent) []byte {
	seen, visible, known := s.config.DB.KnownPresence(k.Mecha, sent.Recipient)
	b := s.appendSent(nil, sent, seen, visible && known)
	if sent.Replayed {
		b = appendBool(b, ',', "replayed", true)
	}
	return append(b, '}')
}
