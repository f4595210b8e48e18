// Package names has what all readers of a file in one process share: the keys of its ids, the
// caches of numbered strings (words and addresses), and the rows that the file's index tables
// lack yet, since a server writes these late (package late).
//
// A Cache gives the string of a number and the number of a string. Numbers keep their strings for
// ever; a string may get another number after its row was removed. Everything here is safe for
// concurrent use, except that only the writer adds to the late indexes.
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
