package db

import (
	"relay/db/internal/late"
	"relay/db/relay"
)

// lookups are the ids, caches and late indexes of a file. All who read a file in
// this process share them.
type lookups struct {
	ids       *relay.IDs
	words     *names[string]
	mechas    *names[relay.Address]
	late      *late.Index[indexedMessage, relay.Position]
	lateWords *late.Index[hashedWord, int64]
}

// newLookups makes the lookups of a file. messages is the late index of the mailboxes.
func newLookups(messages *late.Index[indexedMessage, relay.Position]) *lookups {
	l := &lookups{mechas: newMechas(), late: messages, lateWords: newLateWords()}
	l.words = newWords(l.findWord)
	return l
}
