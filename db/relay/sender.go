package relay

import "time"

// A Sender accepts the messages that clients send over sockets, by the rules of a POST
// (PROTOCOL §3, Send; §4, Frames). Package http implements it, and package ws calls it. It
// is safe for concurrent use.
type Sender interface {
	// MaxFrame is how many bytes a frame with a message may have.
	MaxFrame() int
	// Hold counts n bytes of a Mecha's message among all bodies in progress, or more if
	// the message may become longer; last says that it cannot. The caller must return
	// held by Release. held is 0 for a small message, which is not counted: if that
	// becomes longer, the caller must call Hold again. If there is no room, nothing is
	// counted, and room is closed when it is worth asking again.
	Hold(m MechaNumber, n int, last bool) (held int, room <-chan struct{})
	Release(m MechaNumber, held int)
	// BeginLarge waits for the turn of a frame of more than 64 KiB, which takes long to
	// handle. EndLarge must follow.
	BeginLarge(MechaNumber)
	EndLarge(MechaNumber)
	// Charge counts a message as a request of the key, and returns how long the caller
	// must wait before it hands the message over.
	Charge(KeyNumber) time.Duration
	// SendFrame checks a message and queues it. Once the message is durable or refused,
	// SendFrame calls done, which must not block. answer is the body of the 201 that a
	// POST would get. The messages of a key that one goroutine hands over are committed in
	// that order. SendFrame keeps l.Message until then.
	SendFrame(k *Key, l *SendFrame, done func(answer []byte, err error))
}
