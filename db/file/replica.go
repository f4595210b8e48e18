package file

import (
	"fmt"
	"path/filepath"

	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// A Replica is the place of a file in a log that several copies follow: the row of the
// table replica.
type Replica struct {
	Log     LogID
	Version int64          // of the rules by which entries are applied
	Applied uint64         // the number of the last entry whose writes the file has
	At      int64          // the time of the last entry, in Unix ms
	Last    relay.Position // the last position in the commit order
	// Hash hashes the numbers of the entries so far and, for each applied write, the code of
	// its refusal, if any, and the last position after it. So it shows at once that copies
	// have decided differently, or used other positions. It does not cover the other values
	// in the rows.
	Hash uint64
}

// A LogID names a log. It is random. Each copy that follows the log has it, and so does each entry.
type LogID [8]byte

// ReadReplica reads the place of a file of the current schema. follows is false for a file
// that is its own log.
func ReadReplica(c *sqlite.Conn) (r Replica, follows bool, err error) {
	follows, err = c.Row(func(row *sqlite.Rows) {
		r = Replica{Version: row.Int(1), Applied: uint64(row.Int(2)), At: row.Int(3), Last: relay.Position(row.Int(4)),
			Hash: uint64(row.Int(5))}
		copy(r.Log[:], row.Blob(0))
	}, "SELECT log, version, applied, at, last, hash FROM replica")
	return r, follows, err
}

// FollowsLog refuses a change of the file at path, which follows a log, outside the log: only
// this copy would have it.
func FollowsLog(path string) error {
	return fmt.Errorf("%s is one of several copies that follow a log: only the relay that serves it may change it", path)
}

// ReplicaAt is ReadReplica for the database at path, which may be served.
func ReplicaAt(path string) (r Replica, follows bool, err error) {
	if path, err = filepath.Abs(path); err != nil {
		return r, false, err
	}
	c, _, err := OpenReadOnly(path)
	if err != nil {
		return r, false, err
	}
	defer c.Close()
	return ReadReplica(c)
}

// A Place is the position of a copy in its log, with a hash of how it has applied the entries.
type Place struct {
	Log     LogID
	Version int64  // of the rules that are in force
	Knows   int64  // the newest rules that this program knows
	Applied uint64 // the number of the last entry whose writes are committed, or 0
	Hash    uint64 // after that entry (Replica)
	// Mark is the number of the last entry that is a multiple of MarkEvery, and MarkHash the
	// hash after it, if this process has applied it; else both are 0. Two copies with the
	// same Mark must have the same MarkHash.
	Mark, MarkHash uint64
}
