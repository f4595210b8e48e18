package names

import (
	"relay/db/internal/late"
	"relay/db/relay"
)

// Lookups are the ids, caches and late indexes of a file. All who read a file in
// this process share them.
type Lookups struct {
	IDs       *relay.IDs
	Words     *Cache[string]
	Mechas    *Cache[relay.Address]
	Late      *late.Index[Message, relay.Position]
	LateWords *late.Index[HashedWord, int64]
}

// New makes the lookups of a file. messages is the late index of the mailboxes.
func New(messages *late.Index[Message, relay.Position]) *Lookups {
	l := &Lookups{Mechas: newMechas(), Late: messages, LateWords: newLateWords()}
	l.Words = newWords(l.FindWord)
	return l
}
