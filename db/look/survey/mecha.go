package survey

import (
	"time"

	"relay/db/look"
	"relay/db/relay"
)

// A MechaQuery asks for a page of the registered Mechas, by their addresses.
type MechaQuery struct {
	Text   string              // a part of the address, without regard to letter case; "": all
	Except []relay.MechaNumber // Mechas to leave out
	Offset int                 // how many to skip
	Limit  int
}

// Known is a registered Mecha, as a row of a list.
type Known struct {
	relay.Mecha
	LiveKeys int       // neither revoked nor expired
	LastSeen time.Time // as in Box
}

// Listed is a Mecha with its profile, as the directory has it.
type Listed struct {
	relay.Entry
	LastSeen time.Time // as in Known
}

// A ProfileQuery asks for a page of the directory, by address.
type ProfileQuery struct {
	// Words must each be a part of the address or of the profile's JSON. The case of ASCII
	// letters does not matter.
	Words []string
	After relay.Address // the page begins after this one
	Limit int
}

// ProfilePage is the answer to a ProfileQuery.
type ProfilePage struct {
	List []Listed
	Next relay.Address // the After of the next page, or ""
}

// PendingAges are the upper bounds of the buckets in which MechaState counts pending messages by
// age. A message is in the first bucket whose bound is above its age. The last bucket has no bound.
var PendingAges = []time.Duration{time.Minute, 10 * time.Minute, time.Hour, 6 * time.Hour, 24 * time.Hour}

// MechaState is what the file knows of one Mecha. The file does not know whether it is online.
type MechaState struct {
	Listed
	Box
	RemovedAt  time.Time // zero if it is registered
	HasProfile bool
	Ages       []int // pending messages, by PendingAges, each up to MaxCounted
	Leases     []Lease
	MoreLeases bool
	Keys       []Key // the live ones first, then the newest
	MoreKeys   bool
}

// A Lease is a pending message that a worker holds, or that the Mecha has deferred.
type Lease struct {
	Message relay.MessageID
	Attempt int // 1 for the first
	Since   time.Time
	Until   time.Time
	Claimed bool        // a worker holds it; else it was deferred
	Worker  string      // the name that the worker gave, or ""
	Key     relay.KeyID // of the worker
	Label   string      // of the key
	KeyUsed time.Time   // when the key was last used, to about a minute, or zero
}

// MechaHour counts what a Mecha received, sent and acknowledged, in spans of time.
type MechaHour struct {
	In, Out map[int64]int // messages, by the number of the span since 1970
	Acked   map[int64]int // messages that it acknowledged as final, likewise
	From    time.Time     // everything since this time is counted
	LastAck *look.Step    // its latest acknowledgement of the newest messages, or nil
	Acking  relay.MessageID
}

// A Key is a Mecha key without its secrets.
type Key struct {
	ID        relay.KeyID
	Mecha     relay.Address
	Label     string
	CreatedAt time.Time
	ExpiresAt time.Time // zero: never
	RevokedAt time.Time // zero: not revoked
	LastUsed  time.Time // to about a minute; zero: never
	Broadcast bool      // it may write to all crews
	Secret    bool      // it has a separate signing secret
	State     KeyState
}

// KeyState is the state of a key, the most urgent first.
type KeyState int8

// The states.
const (
	KeyEnding  KeyState = iota // it is live, and expires within KeySoon
	KeyUnused                  // it is live, and was never used
	KeyLive                    // any other live key
	KeyExpired                 // it has expired
	KeyRevoked                 // it was revoked
)

var keyStates = [...]string{"ending", "unused", "live", "expired", "revoked"}

// String returns the state's name.
func (s KeyState) String() string { return keyStates[s] }

// ParseKeyState finds the state with a name.
func ParseKeyState(name string) (KeyState, bool) {
	for i, n := range keyStates {
		if n == name {
			return KeyState(i), true
		}
	}
	return 0, false
}

// KeySoon is how near an end of a key counts as soon.
const KeySoon = 14 * 24 * time.Hour

// A KeyQuery asks for a page of the keys: first those that end soon, then unused ones,
// then the other live ones by their last use, and then ended ones.
type KeyQuery struct {
	Text   string    // a part of the address, the label or the id, without regard to the case of ASCII letters; "": all
	State  *KeyState // nil: all
	Offset int
	Limit  int
}

// KeyPage is the answer to a KeyQuery.
type KeyPage struct {
	List   []Key
	More   bool
	Counts [5]int // of the keys that have the text, by their state
}
