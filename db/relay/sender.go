package relay

import "time"

// A Sender accepts the messages that clients send over sockets, by the rules of a POST
// (PROTOCOL §3, Send; §4, Frames). Package http has it, and package ws calls it. It is safe
// for concurrent use.
type Sender interface {
	// MaxFrame is how many bytes a frame with a message may have.
	MaxFrame() int
	// Hold counts n bytes of a Mecha's message among all bodies under way, or more if the
	// message may become longer; last tells that it cannot. held must be given back by
	// Release. It is 0 for a small message, which is not counted: if that becomes longer,
	// Hold must be called again. If there is no room, nothing is counted, and room is
	// closed when it is worth asking again.
	Hold(m MechaNumber, n int, last bool) (held int, room <-chan struct{})
	Release(m MechaNumber, held int)
	// BeginLarge waits for the turn of a frame of more than 64 KiB, the work on which
	// takes long. EndLarge must follow.
	BeginLarge(MechaNumber)
	EndLarge(MechaNumber)
	// Charge counts a message as a request of the key, and returns how long the caller
	// must wait before it hands the message over.
	Charge(KeyNumber) time.Duration
	// SendFrame checks a message and queues it. Once the message is durable or refused,
	// SendLetter calls done, which must not block. answer is the body of the 201 that a
	// POST would get. The messages of a key that one goroutine hands over are committed in
	// that order. SendLetter keeps l.Message until then.
	SendFrame(k *Key, l *SendFrame, done func(answer []byte, err error))
}
