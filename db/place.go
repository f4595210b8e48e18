package db

import "relay/db/file"

// A Place is how far a copy has come in its log, and what it has made of the entries.
type Place struct {
	Log     file.LogID
	Version int64  // of the rules that are in force
	Knows   int64  // the newest rules that this program knows
	Applied uint64 // the number of the last entry whose writes are committed; 0: none
	Hash    uint64 // after that entry (file.Replica)
	// Mark is the number of the last entry that is a multiple of MarkEvery, and MarkHash the
	// hash after it, if this process has applied it; else both are 0. Two copies with the
	// same Mark must have the same MarkHash.
	Mark, MarkHash uint64
}

// MarkEvery is the number of entries from one mark of a Place to the next.
const MarkEvery = 1024

// Place gives the place of this copy in its log, as of the last commit. It is the zero Place
// if the file is its own log. Safe for concurrent use.
func (d *DB) Place() Place {
	if l, follows := d.w.Log.(*replication); follows {
		return *l.replica.place.Load()
	}
	return Place{}
}
