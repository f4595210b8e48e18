// Package ring keeps the nonces that a server has accepted in a file that outlives the
// process (PROTOCOL §2). The file is mapped into memory, so a killed process loses
// none of them, and to add one takes no system call. A power cut may lose the newest.
// The package knows nothing of requests and databases.
//
// The first segment of the file has the header. The other segments have entries of 16
// bytes: a hash, and when its nonce may be forgotten. When all nonces of a segment may be
// forgotten, the segment is used again. If there is no such segment, the file grows.
//
// All times are running time: how long servers have run on the database since its ring
// was made, without the time between two servers. So a wrong clock, or a change of the
// clock, does not make the ring forget a nonce too early.
package ring

import (
	"encoding/binary"
	"errors"
	"log/slog"
	"math"
	"os"
	"sync"
	"time"
)

const (
	slotBytes    = 16
	segmentSlots = 1 << 14
	segmentBytes = segmentSlots * slotBytes // a multiple of every system's page size
)

// Suffix follows the name of the database in the name of its ring.
const Suffix = "-nonces"

// ErrFull is the error of Add if the ring has as many nonces as Options.MaxNonces allows.
var ErrFull = errors.New("the ring of nonces is full")

// A Mark names one start of a server on a database. The database and its ring have the
// mark of the last start. If the two differ, nonces are missing from the ring.
type Mark [16]byte

// Options says which database the ring belongs to, and has the marks of its starts.
type Options struct {
	Store     uint64        // names the database; the ring of another database is emptied
	Last      Mark          // the mark of the last start in the database, or zero
	Mark      Mark          // the mark of this start; Last, if the database could not be written
	Unused    bool          // as far as the database knows, no server has run on it before
	Skew      time.Duration // how far the timestamp of a request may be off in this run
	MaxNonces int64         // roughly how many nonces the file may have; 0 means no limit
	Logger    *slog.Logger
	// Found is called with the nonces of the ring, which may include some whose time is
	// over. ends has the last second of the running time in which each must be refused.
	// Found keeps the slices.
	Found func(hashes []uint64, ends []uint32)
}

// Past describes the nonces that were accepted before this start. Its times are running
// time.
type Past struct {
	Began time.Duration // this start
	Whole bool          // the ring has every nonce that was added to it
	// Since is the time from which on every accepted nonce was in the ring. It is Began if
	// the ring is not Whole.
	Since time.Duration
	// Floor is the earliest timestamp that a request may have. The nonce of an earlier
	// request may be forgotten.
	Floor time.Duration
}

// Beginning is a running time before every other one.
const Beginning = -24 * time.Hour

// A Ring is an open ring. Its methods are safe for concurrent use.
type Ring struct {
	mu          sync.Mutex
	path        string
	file        *os.File // nil: the ring was dropped or closed
	log         *slog.Logger
	store       uint64
	head        header
	maxSegments int      // how many segments there may be
	until       []uint32 // for each segment, the last second for which one of its nonces is refused
	slots       segment  // the present segment; closed if it has no next slot
	at          int      // its number
	next        int      // its first free slot
	last        uint32   // the second of the last entry
}

// Open opens the ring at path, or makes it, and reads the nonces that earlier processes
// added. If it returns an error, there is no Ring, and the file was removed if that was
// possible. Even then, the Past is valid, and the nonces that Found got must be refused.
// Only one process may have the ring open, so the caller must have the lock of the
// database.
func Open(path string, o Options) (*Ring, Past, error) {
	r := &Ring{path: path, log: o.Logger, store: o.Store, maxSegments: math.MaxInt, at: -1, next: segmentSlots}
	if o.MaxNonces > 0 {
		r.maxSegments = int(o.MaxNonces/segmentSlots) + 16
	}
	f, err := openFile(path)
	if err == nil {
		r.file = f
		err = r.read(o.Store, o.Found)
	}
	past := r.past(o)
	if err != nil { // Found may have got only some
		past = Past{Began: past.Began, Since: past.Began, Floor: past.Began}
	} else {
		err = r.begin(o, past)
	}
	if err != nil {
		r.remove()
		return nil, past, err
	}
	return r, past, nil
}

// openFile opens the file, or makes it. If the path has something else, such as a link
// that somebody has put there, openFile removes that, so that the file to which a link
// leads is not overwritten.
func openFile(path string) (*os.File, error) {
	if info, err := os.Lstat(path); err == nil && (!info.Mode().IsRegular() || links(info) > 1) {
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE|noFollow, 0o600)
}

// read reads the header and the segments. A ring of another database, or one that
// cannot be read as a ring, is emptied.
func (r *Ring) read(store uint64, found func([]uint64, []uint32)) error {
	info, err := r.file.Stat()
	if err != nil {
		return err
	}
	var known bool
	if r.head, known = readHeader(r.file); !known || r.head.Store != store {
		r.head = header{}
		return r.file.Truncate(0)
	}
	r.until = make([]uint32, max(0, info.Size()/segmentBytes-1))
	buffer := make([]byte, segmentBytes)
	for i := range r.until {
		if _, err := r.file.ReadAt(buffer, offset(i)); err != nil {
			return err
		}
		if hashes, ends := r.readSegment(i, buffer); len(hashes) > 0 {
			found(hashes, ends)
		}
	}
	return nil
}

// readSegment returns the nonces of a segment. If the segment has free slots, it becomes the
// present one, so that many starts do not need many segments.
func (r *Ring) readSegment(i int, buffer []byte) (hashes []uint64, ends []uint32) {
	hashes, ends = make([]uint64, 0, segmentSlots), make([]uint32, 0, segmentSlots)
	used := 0
	for slot := range segmentSlots {
		entry := buffer[slot*slotBytes:][:slotBytes]
		hash, word := binary.LittleEndian.Uint64(entry), binary.LittleEndian.Uint64(entry[8:])
		at, life := uint32(word>>32), uint16(word>>16)
		if word == 0 || word != pack(r.store, hash, at, life) {
			continue
		}
		used = slot + 1
		end := at + uint32(life)
		r.last, r.until[i] = max(r.last, at), max(r.until[i], end)
		hashes, ends = append(hashes, hash), append(ends, end)
	}
	if used < segmentSlots {
		r.at, r.next = i, used
	}
	return hashes, ends
}

// past decides whether the ring has every nonce. It has if it was closed, or if its
// process was killed while the system kept running. A copy of the file does not count,
// because the nonces that were accepted after the copy was made are in the original.
func (r *Ring) past(o Options) Past {
	// A time that is too early is harmless. One that is too late would make Floor seem
	// earlier than it is.
	began := max(time.Duration(r.head.Began), time.Duration(r.last)*time.Second)
	whole := r.head.Mark == o.Last && o.Last != Mark{} && r.head.File == identity(r.file) && r.head.File != 0 &&
		(r.head.Clean == 1 || r.head.Boot == bootMark() && r.head.Boot != Mark{})
	switch {
	case o.Unused && r.head.Store != o.Store: // with a ring of its own, the database is an old copy of a used one
		return Past{Began: began, Whole: true, Since: Beginning, Floor: Beginning}
	case whole:
		// Nonces that the last run had forgotten could be used again if this run accepts
		// older timestamps than the last.
		floor := max(time.Duration(r.head.Floor), began-time.Duration(r.head.Skew))
		return Past{Began: began, Whole: true, Since: time.Duration(r.head.Since), Floor: floor}
	}
	return Past{Began: began, Since: began, Floor: began}
}

// begin writes the header of this run. Usually the database has the mark of this start
// already. If that could not be written, the header must be durable: without it, this ring
// would count as closed after a power cut.
func (r *Ring) begin(o Options, p Past) error {
	r.head = header{
		Magic: magic, Store: o.Store, Mark: o.Mark, Boot: bootMark(), File: identity(r.file),
		Began: int64(p.Began), Since: int64(p.Since), Floor: int64(p.Floor), Skew: int64(o.Skew),
	}
	if err := r.head.write(r.file); err != nil {
		return err
	}
	if o.Mark == o.Last {
		return r.file.Sync()
	}
	return nil
}

// Add adds a nonce that is accepted in a second of the running time and must be refused
// for life seconds after it. The only error is ErrFull. If the file cannot be written, Add
// logs that and drops the ring. From then on, Add does nothing.
func (r *Ring) Add(hash uint64, second uint32, life uint16) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file == nil {
		return nil
	}
	second = max(second, r.last) // running time, so it does not go back
	if r.next == segmentSlots || !r.slots.isOpen() {
		if err := r.advance(second); errors.Is(err, ErrFull) {
			return err
		} else if err != nil {
			r.drop(err)
			return nil
		}
	}
	life = max(life, 1)
	if err := r.slots.put(r.next, hash, pack(r.store, hash, second, life)); err != nil {
		r.drop(err)
		return nil
	}
	r.next++
	r.last = second
	r.until[r.at] = max(r.until[r.at], second+uint32(life))
	return nil
}

// advance opens the segment with the next free slot. If the present segment is full, that
// is one whose nonces may all be forgotten, or a new one at the end. advance writes zeros
// into a segment before it maps the segment, so that a full disk causes an error and not
// a fault of the mapping.
func (r *Ring) advance(second uint32) error {
	if err := r.intact(); err != nil {
		return err
	}
	if r.next == segmentSlots {
		i := 0
		for i < len(r.until) && r.until[i] >= second {
			i++
		}
		if i >= r.maxSegments {
			return ErrFull
		}
		if _, err := r.file.WriteAt(zeros[:], offset(i)); err != nil {
			return err
		}
		if i == len(r.until) {
			r.until = append(r.until, 0)
		}
		r.at, r.next, r.until[i] = i, 0, 0
	}
	if err := r.slots.close(); err != nil {
		return err
	}
	var err error
	r.slots, err = openSegment(r.file, offset(r.at))
	return err
}

// intact returns an error if another process has truncated the file. Then nonces are
// missing, and Close must not mark the ring as complete.
func (r *Ring) intact() error {
	info, err := r.file.Stat()
	if err == nil && len(r.until) > 0 && info.Size() < offset(len(r.until)) {
		err = errors.New("another process has cut the file off")
	}
	return err
}

// drop continues without the file. The next start finds no ring, and refuses the requests
// that were signed before it.
func (r *Ring) drop(cause error) {
	r.log.Warn("the file of used nonces cannot be written; they are kept in memory, and the next start refuses "+
		"requests that were signed before it", "file", r.path, "error", cause)
	r.remove()
}

func (r *Ring) remove() {
	r.slots.close()
	if r.file != nil {
		r.file.Close()
		r.file = nil
	}
	os.Remove(r.path)
}

// Close marks the ring as complete, so that the next Open trusts it even after a power
// cut, and closes it. The caller must have stopped accepting nonces.
func (r *Ring) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file == nil {
		return nil
	}
	err := r.intact()
	if err == nil {
		err = r.slots.close()
	}
	if err == nil {
		err = r.file.Sync() // the entries come first, since the mark vouches for them
	}
	if err == nil {
		r.head.Clean = 1
		if err = r.head.write(r.file); err == nil {
			err = r.file.Sync()
		}
	}
	if err != nil {
		r.drop(err)
		return nil
	}
	err = r.file.Close()
	r.file = nil
	return err
}

var zeros [segmentBytes]byte

// offset returns where a segment begins. The header's segment comes before all others.
func offset(segment int) int64 { return int64(segment+1) * segmentBytes }

// pack makes the second half of an entry: when the nonce was accepted, for how long it is
// refused, and a checksum of the entry, which tells an entry from damaged bytes.
func pack(store, hash uint64, at uint32, life uint16) uint64 {
	word := uint64(at)<<32 | uint64(life)<<16
	mixed := (store ^ hash ^ word*0x9e3779b97f4a7c15) * 0xff51afd7ed558ccd // odd constants of splitmix64 and murmur3
	return word | mixed>>48
}

// mix makes one nonzero number of the numbers that identify a file.
func mix(inode uint64, seconds, nanoseconds int64) uint64 {
	return (inode^uint64(seconds)*0x9e3779b97f4a7c15^uint64(nanoseconds)*0xff51afd7ed558ccd)*0x9e3779b97f4a7c15 | 1
}
