package cmd_test

import (
	"math/rand/v2"
	"path/filepath"
	"slices"
)

// A powerDisk is what a disk may hold when its power goes, after a recorded run
// up to some line. Everything that an fsync covered is there. Of later writes, each
// may be there whole, not at all, or in some of its sectors, whatever became of the
// writes before it; a size that changed may be the old one; a new name
// may be missing until its directory has been synced.
type powerDisk struct {
	db       string
	content  map[string][]byte // what is certainly there
	pending  []*fileOp         // writes and truncations that are not, in order
	named    bool              // the log's name is certainly there
	exists   bool              // the log has been made
	removed  []byte            // a log whose name may not be gone yet
	lies     bool              // fsyncs of the log do nothing: a disk that lies
	told     map[string]bool   // ids that somebody was told of
	finished map[string]bool
	next     int // the first of ops that has not begun
	syncing  []*fileOp
}

const sector = 512

// until brings the disk to a line of the trace. Lines must not decrease.
func (d *powerDisk) until(ops []*fileOp, line int) {
	for ; d.next < len(ops) && ops[d.next].begin <= line; d.next++ {
		op := ops[d.next]
		switch op.kind {
		case writes, truncates:
			d.pending = append(d.pending, op)
		case syncs:
			d.syncing = append(d.syncing, op)
		case creates:
			d.exists = true
		case removes:
			d.remove(op.file)
		case tells:
			for _, id := range op.told {
				d.told[id] = true
			}
			for _, id := range op.finished {
				d.finished[id] = true
			}
		}
	}
	// Each sync that has returned makes durable what was complete when it began.
	d.syncing = slices.DeleteFunc(d.syncing, func(sync *fileOp) bool {
		if sync.end > line {
			return false
		}
		if sync.file == filepath.Dir(d.db) {
			d.named, d.removed = d.exists, nil
		}
		if !(d.lies && sync.file == d.db+"-wal") {
			d.makeDurable(sync)
		}
		return true
	})
}

// remove takes a file away, which may come back as it was.
func (d *powerDisk) remove(file string) {
	d.removed = d.content[file]
	d.pending = slices.DeleteFunc(d.pending, func(op *fileOp) bool {
		if op.file == file {
			d.removed = op.apply(d.removed, nil)
		}
		return op.file == file
	})
	d.exists, d.named, d.content[file] = false, false, nil
}

func (d *powerDisk) makeDurable(sync *fileOp) {
	d.pending = slices.DeleteFunc(d.pending, func(op *fileOp) bool {
		if op.file != sync.file || op.end >= sync.begin {
			return false
		}
		d.content[op.file] = op.apply(d.content[op.file], nil)
		return true
	})
}

// apply returns a file's content after the write, of which only the sectors that
// keep says are there; nil keeps all.
func (op *fileOp) apply(content []byte, keep func() bool) []byte {
	if op.kind == truncates {
		if int64(len(content)) > op.offset {
			return content[:op.offset]
		}
		return append(content, make([]byte, op.offset-int64(len(content)))...)
	}
	for from := int64(0); from < int64(len(op.data)); {
		at := op.offset + from
		to := min(from+sector-at%sector, int64(len(op.data)))
		if keep == nil || keep() {
			if grow := op.offset + to - int64(len(content)); grow > 0 {
				content = append(content, make([]byte, grow)...)
			}
			copy(content[at:], op.data[from:to])
		}
		from = to
	}
	return content
}

// A survival says what becomes of writes that were not synced.
var survivals = []struct {
	name string
	of   func(r *rand.Rand, n int) func(i int) (keep func() bool, some bool)
}{
	{"nothing", func(*rand.Rand, int) func(int) (func() bool, bool) {
		return func(int) (func() bool, bool) { return nil, false }
	}},
	{"everything", func(*rand.Rand, int) func(int) (func() bool, bool) {
		return func(int) (func() bool, bool) { return nil, true }
	}},
	{"a prefix, its end torn", func(r *rand.Rand, n int) func(int) (func() bool, bool) {
		last, sectors := r.IntN(n+1), r.IntN(20)
		torn := func() bool { sectors--; return sectors >= 0 }
		return func(i int) (func() bool, bool) {
			if i == last {
				return torn, true
			}
			return nil, i < last
		}
	}},
	{"any writes", func(r *rand.Rand, _ int) func(int) (func() bool, bool) {
		return func(int) (func() bool, bool) { return nil, r.IntN(2) == 0 }
	}},
	{"any sectors", func(r *rand.Rand, _ int) func(int) (func() bool, bool) {
		keep := func() bool { return r.IntN(4) > 0 }
		return func(int) (func() bool, bool) { return keep, true }
	}},
}

// after returns the files as a cut may leave them. A nil content: there is no such file.
func (d *powerDisk) after(r *rand.Rand, survival int) map[string][]byte {
	files := map[string][]byte{}
	for name, content := range d.content {
		files[name] = slices.Clone(content)
	}
	survives := survivals[survival].of(r, len(d.pending))
	for i, op := range d.pending {
		if keep, some := survives(i); some {
			files[op.file] = op.apply(files[op.file], keep)
		}
	}
	if !d.named && (!d.exists || r.IntN(2) == 0) {
		files[d.db+"-wal"] = nil
		if r.IntN(2) == 0 {
			files[d.db+"-wal"] = d.removed
		}
	}
	return files
}
