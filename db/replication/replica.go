package replication

import (
	"hash/fnv"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"relay/db/file"
	"relay/db/internal/engine"
	"relay/db/relay"
)

// Replica is the room that stores the place of the file in the log, in the same
// transaction as the rows of the entries, so that each entry is applied once. Only the
// writer's goroutine uses it.
type Replica struct {
	engine.Quiet
	w       *engine.Store
	File    file.Replica      // as committed
	origins map[Origin]uint64 // the last number of each, as committed
	spent   spentNonces       // as committed

	Knows int64 // the newest rules that this program knows (newestRules)

	place     atomic.Pointer[file.Place] // as committed; others may load it
	AppliedTo applied                    // as committed; others may read it

	now  file.Replica // with the entries of the present transaction
	mark file.Place   // its Mark and MarkHash alone are used, with the entries of the present transaction
	skip bool         // the present entry was applied before
	// Of the present transaction:
	counters map[Origin]uint64
	nonces   map[relay.NonceHash]bool
	entries  []entryNonces
}

// entryNonces has the nonces of the writes of one entry.
type entryNonces struct {
	number uint64
	at     int64
	nonces []relay.NonceHash
}

func newReplica(w *engine.Store, at file.Replica) (*Replica, error) {
	r := &Replica{w: w, Knows: newestRules, File: at, now: at, origins: map[Origin]uint64{}, spent: spentNonces{},
		counters: map[Origin]uint64{}, nonces: map[relay.NonceHash]bool{}}
	r.AppliedTo.move(at.Last)
	r.publish()
	return r, r.start()
}

// publish makes the committed place known to other goroutines.
func (r *Replica) publish() {
	r.place.Store(&file.Place{Log: r.File.Log, Version: r.File.Version, Knows: r.Knows, Applied: r.File.Applied,
		Hash: r.File.Hash, Mark: r.mark.Mark, MarkHash: r.mark.MarkHash})
}

// passed notes a mark, if the number of the last entry is a mark and all its writes are
// in the hash.
func (r *Replica) passed() {
	if r.now.Applied%MarkEvery == 0 && r.now.Applied > 0 {
		r.mark.Mark, r.mark.MarkHash = r.now.Applied, r.now.Hash
	}
}

func (r *Replica) Begin(*engine.Tx) {
	r.now, r.mark, r.skip = r.File, *r.place.Load(), false
	clear(r.counters)
	clear(r.nonces)
	r.entries = r.entries[:0]
}

// entry begins an entry. Its time is the log's time, in whole milliseconds; if that falls,
// it is the time of the entry before.
func (r *Replica) entry(number uint64, at time.Time, from Origin, counter uint64) {
	r.passed()
	r.now.Applied, r.now.At = number, max(r.now.At, at.UnixMilli())
	r.mix(number + uint64(r.now.Version-1)<<48) // copies that apply it by different rules differ
	last, known := r.counters[from]
	if !known {
		last = r.origins[from]
	}
	if r.skip = counter <= last; !r.skip {
		r.counters[from] = counter
	}
	r.entries = append(r.entries, entryNonces{number: number, at: r.now.At})
}

// time returns the time of the present entry.
func (r *Replica) time() time.Time { return relay.UnixMilli(r.now.At) }

// used reports whether a write in the log had this nonce, by the time of the present entry.
// Without a log it is false, because the nonce was then refused before.
func (r *Replica) used(n relay.NonceHash) bool {
	return r != nil && n != 0 && (r.nonces[n] || r.spent.has(n, r.now.At))
}

// wrote notes the outcome of a write of the present entry. Even a refused write spends its
// nonce.
func (r *Replica) wrote(n relay.NonceHash, err error, last relay.Position) {
	if n != 0 && !r.used(n) {
		r.nonces[n] = true
		e := &r.entries[len(r.entries)-1]
		e.nonces = append(e.nonces, n)
	}
	if err != nil {
		code := fnv.New64a()
		code.Write([]byte(relay.ErrorCode(err)))
		r.mix(code.Sum64())
	}
	r.mix(uint64(last))
}

// mix takes a number into the hash.
func (r *Replica) mix(n uint64) {
	h := (r.now.Hash ^ n) * 0x9e3779b97f4a7c15
	r.now.Hash = h ^ h>>32
}

// BeforeCommit writes the place, if the transaction has entries.
func (r *Replica) BeforeCommit(t *engine.Tx) error {
	if r.now.Applied == r.File.Applied {
		return nil
	}
	r.now.Last = t.Last
	return r.write(t)
}

func (r *Replica) AfterCommit(*engine.Tx) {
	if r.now.Applied == r.File.Applied {
		return
	}
	if r.now.Version > r.File.Version {
		r.w.Opts.Logger.Info("newer rules of the log are in force", "rules", r.now.Version, "entry", r.now.Applied)
	}
	r.File = r.now
	for from, counter := range r.counters {
		r.origins[from] = counter
	}
	for _, e := range r.entries {
		r.spent.add(e.at, e.nonces)
	}
	r.spent.forget(r.File.At)
	r.passed()
	r.publish()
	r.AppliedTo.move(r.File.Last)
}

// spentNonces has the nonces of the writes in the log, by parts of the log's time. Which of
// them still count depends on that time alone, so all copies refuse the same writes. Only the
// rate of writes bounds their number: with different bounds, copies would decide differently.
// A nonce takes 24 to 38 bytes of memory, so 1,000 writes a second, for up to 40 minutes,
// take 60 to 90 MB.
type spentNonces map[int64]map[relay.NonceHash]struct{}

const (
	spentPart = 5 * time.Minute
	// spentStays is how long a nonce counts, at least: as long as a request could be repeated at
	// another node, whatever clock skew the nodes allow, plus one spentPart. Whole parts are
	// forgotten, so a nonce may count one part longer. If the log's clock jumps ahead, as when
	// another machine takes over, nonces are forgotten earlier by the width of the jump: the
	// additional part covers jumps of up to 5 minutes in all. If the clock jumps back, the log's
	// time stays constant, and nonces count longer.
	spentStays = 2*relay.MaxClockSkew + spentPart
)

// firstPart returns the first part whose nonces count at a time in Unix ms.
func firstPart(now int64) int64 { return partOf(now - spentStays.Milliseconds()) }

// partOf returns the part of a time in Unix ms.
func partOf(ms int64) int64 { return ms / spentPart.Milliseconds() }

func (s spentNonces) has(n relay.NonceHash, now int64) bool {
	first := firstPart(now)
	for part, nonces := range s {
		if _, ok := nonces[n]; ok && part >= first {
			return true
		}
	}
	return false
}

func (s spentNonces) add(at int64, nonces []relay.NonceHash) {
	if len(nonces) == 0 {
		return
	}
	part := s[partOf(at)]
	if part == nil {
		part = map[relay.NonceHash]struct{}{}
		s[partOf(at)] = part
	}
	for _, n := range nonces {
		part[n] = struct{}{}
	}
}

// forget drops the parts that no longer count.
func (s spentNonces) forget(now int64) {
	for part := range s {
		if part < firstPart(now) {
			delete(s, part)
		}
	}
}

// inOrder returns the origins of the present transaction in order.
func (r *Replica) inOrder() []Origin {
	all := make([]Origin, 0, len(r.counters))
	for from := range r.counters {
		all = append(all, from)
	}
	slices.SortFunc(all, func(a, b Origin) int { return slices.Compare(a[:], b[:]) })
	return all
}

// applied tells other goroutines up to which position a copy has applied its log.
type applied struct {
	mu    sync.Mutex
	last  relay.Position // as committed
	moved chan struct{}  // closed when last grows; nil if nobody waits
}

// move moves the position forward, after a commit.
func (r *applied) move(to relay.Position) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = to
	if r.moved != nil {
		close(r.moved)
		r.moved = nil
	}
}

// Get returns the position, and a channel that is closed when it grows.
func (r *applied) Get() (last relay.Position, moved <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.moved == nil {
		r.moved = make(chan struct{})
	}
	return r.last, r.moved
}

// MarkEvery is the number of entries from one mark of a file.Place to the next.
const MarkEvery = 1024
