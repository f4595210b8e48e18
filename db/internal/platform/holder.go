package platform

// A Lock is a range of bytes of a log's index (the file -shm), with which SQLite locks
// the log (https://sqlite.org/walformat.html#wal_locks).
type Lock struct {
	first, last int64
	shared      bool // several processes may have the lock
}

// The locks that a process may have for too long.
var (
	WriteLock    = Lock{first: 120, last: 120}               // held by a process that writes
	SnapshotLock = Lock{first: 123, last: 127, shared: true} // held by processes that read
)

// unknownHolder is the answer if the operating system reveals no holder.
const unknownHolder = "unknown"
