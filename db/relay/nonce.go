package relay

import "time"

// UseNonce is the write that uses up the nonce of a request which writes nothing itself, but
// lets its sender write later: a handshake of a socket, or a question for a ticket. Without it,
// another node of a cluster would accept the same request again. Only a store that follows a
// log makes it.
type UseNonce struct {
	At    time.Time
	Key   KeyNumber
	Nonce NonceHash
}

func (u *UseNonce) When() time.Time { return u.At }

func (u *UseNonce) setTime(at time.Time) { u.At = at }

func (u *UseNonce) Size() int { return 64 }

func (u *UseNonce) kind() byte { return kindUseNonce }

func (u *UseNonce) fields(f *form) {
	f.time(&u.At)
	integer(f, &u.Key)
	integer(f, &u.Nonce)
}
