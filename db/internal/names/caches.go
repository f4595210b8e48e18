// Package names has what all readers of a file in one process share: the keys of its ids, the
// caches of numbered strings (words and addresses), and the rows that the file's index tables
// lack yet, since a server writes these late (package late).
//
// A Cache finds the string of a number and the number of a string. Numbers keep their strings
// forever; a string may get another number after its row was removed. Everything here is safe for
// concurrent use, except that only the writer adds to the write-behind indexes.
package names

import (
	"relay/db/internal/late"
	"relay/db/relay"
)

// Caches are the ids, caches and write-behind indexes of a file. All readers of a file in
// this process share them.
type Caches struct {
	IDs         *relay.IDs
	Words       *Cache[string]
	Mechas      *Cache[relay.Address]
	TailIndex   *late.Index[Message, relay.Position]
	TailStrings *late.Index[HashedWord, int64]
}

// New makes the caches of a file. messages is the write-behind index of the mailboxes.
func New(messages *late.Index[Message, relay.Position]) *Caches {
	l := &Caches{Mechas: newMechas(), TailIndex: messages, TailStrings: newTailStrings()}
	l.Words = newWords(l.FindWord)
	return l
}
