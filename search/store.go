package search

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"relay/db/relay"

	"github.com/blevesearch/bleve/v2"
	"github.com/blevesearch/bleve/v2/index/scorch"
	"github.com/blevesearch/bleve/v2/util"
	index "github.com/blevesearch/bleve_index_api"
	segment "github.com/blevesearch/scorch_segment_api/v2"
	"go.etcd.io/bbolt"
	bolt "go.etcd.io/bbolt/errors"
)

// Keys of what the index keeps beside its documents, written in the same batch.
var (
	keyVersion   = []byte("relay.version")
	keyWatermark = []byte("relay.watermark")
	keyTotals    = []byte("relay.totals")
	keyRecent    = []byte("relay.recent")
)

var (
	errLocked  = errors.New("search: the index is in use by another process")
	errVersion = errors.New("search: the index is of another version")
	errNoIndex = errors.New("search: there is no index")
)

// A DamageError says that the index cannot be used as it is. It is never shown
// to a client: the index is made anew from the store.
type DamageError struct{ Cause error }

func (e *DamageError) Error() string { return "search: damaged index: " + e.Cause.Error() }

// Unwrap gives the cause.
func (e *DamageError) Unwrap() error { return e.Cause }

// guard turns a panic inside bleve into a DamageError: it has been seen to
// panic on damaged files, and a search must not end the process.
func guard(err *error) {
	if p := recover(); p != nil {
		*err = &DamageError{fmt.Errorf("panic: %v", p)}
	}
}

// faultsPanic makes a fault in mapped memory (a segment cut short under us) a
// panic of this goroutine, which guard catches, until the function that it
// returns is called.
func faultsPanic() func() {
	before := debug.SetPanicOnFault(true)
	return func() { debug.SetPanicOnFault(before) }
}

// A position is how far the index has followed the store: the revision of the
// last entry applied, and whose it was.
type position struct {
	revision int64
	id       relay.MechaNumber
}

// A store is one bleve index in a folder. Its methods may be called from any
// goroutine, but only one may write.
type store struct {
	bleve bleve.Index
	inner index.Index

	columns columns
	lost    string // what was damaged so that an older state was opened; "" if nothing was
}

// Documents are analysed by one worker, not by bleve's four: a rebuild that
// takes every core is no faster on two, and makes messages wait longer.
func init() { bleve.Config.SetAnalysisQueueSize(1) }

const lockTimeout = 2 * time.Second

// runtimeConfig: one bolt lock, waited for briefly; one snapshot, because the
// store of profiles is what one goes back to.
func runtimeConfig() map[string]any {
	return map[string]any{"bolt_timeout": lockTimeout.String(), "numSnapshotsToKeep": 1}
}

// openStore opens the index in dir. It fails with errNoIndex, errLocked,
// errVersion or a *DamageError. If only the last state is damaged, bleve opens
// the one before, whose watermark is lower: that is caught up with.
func openStore(dir string, log *slog.Logger) (s *store, err error) {
	defer guard(&err)
	if _, err := os.Stat(filepath.Join(dir, "index_meta.json")); err != nil {
		if _, err := os.Stat(filepath.Join(dir, "store")); err == nil {
			return nil, &DamageError{errors.New("index_meta.json is missing")}
		}
		return nil, errNoIndex
	}
	newest, err := newestPosition(filepath.Join(dir, "store", "root.bolt"))
	if err != nil {
		return nil, err
	}
	if err := dropBrokenSegments(filepath.Join(dir, "store"), log); err != nil {
		return nil, err
	}
	b, err := bleve.OpenUsing(dir, runtimeConfig())
	switch {
	case errors.Is(err, bolt.ErrTimeout):
		return nil, errLocked
	case err != nil:
		return nil, &DamageError{err}
	}
	if s, err = newStore(b); err == nil {
		err = s.checkVersion()
	}
	if err == nil {
		err = s.compare(newest)
	}
	if err != nil {
		b.Close()
		return nil, err
	}
	return s, nil
}

// compare notes whether an older state than the newest was opened.
func (s *store) compare(newest position) error {
	v, err := s.view()
	if err != nil {
		return err
	}
	defer v.Close()
	if at := v.position.revision; at < newest.revision {
		s.lost = fmt.Sprintf("search: damaged index: its newest state, of revision %d, cannot be opened; the one before, of revision %d, is brought up to date", newest.revision, at)
	}
	return nil
}

// newestPosition reads the watermark of the newest state that the index has
// written, whether or not it can be opened: bleve does not tell when it goes
// back to one before.
//
// It also refuses a file that is cut short. Bolt maps it into memory and does
// not look: a page that is not there would end the process, from whatever
// goroutine of bleve's reads it.
func newestPosition(file string) (p position, err error) {
	info, err := os.Stat(file)
	if err != nil || info.Size() == 0 {
		return p, nil // what there is instead is for bleve to say
	}
	defer guard(&err)
	defer faultsPanic()()
	d, err := bbolt.Open(file, 0o600, &bbolt.Options{ReadOnly: true, Timeout: lockTimeout})
	switch {
	case errors.Is(err, bolt.ErrTimeout):
		return p, errLocked
	case err != nil:
		return p, &DamageError{err}
	}
	defer d.Close()
	err = d.View(func(tx *bbolt.Tx) (err error) {
		if info.Size() < tx.Size() {
			return fmt.Errorf("root.bolt is cut short: %d bytes of %d", info.Size(), tx.Size())
		}
		states := tx.Bucket(util.BoltSnapshotsBucket)
		if states == nil {
			return nil
		}
		last, _ := states.Cursor().Last()
		if state := states.Bucket(last); state != nil {
			if internal := state.Bucket(util.BoltInternalKey); internal != nil {
				p, err = decodePosition(internal.Get(keyWatermark))
			}
		}
		return err
	})
	if err != nil {
		err = &DamageError{err}
	}
	return p, err
}

func newStore(b bleve.Index) (*store, error) {
	inner, err := b.Advanced()
	if err != nil {
		return nil, &DamageError{err}
	}
	return &store{bleve: b, inner: inner}, nil
}

func (s *store) checkVersion() error {
	v, err := s.bleve.GetInternal(keyVersion)
	switch {
	case err != nil:
		return &DamageError{err}
	case string(v) == indexVersion:
		return nil
	case v == nil:
		return &DamageError{errors.New("it lost its first batch")}
	}
	return errVersion
}

// createStore makes an empty index in dir, which must hold none.
func createStore(dir string) (s *store, err error) {
	defer guard(&err)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("search: %w", err)
	}
	b, err := bleve.NewUsing(dir, bleve.NewIndexMapping(), scorch.Name, scorch.Name, runtimeConfig())
	if err != nil {
		return nil, fmt.Errorf("search: create index: %w", err)
	}
	s, err = newStore(b)
	if err == nil {
		batch := b.NewBatch()
		batch.SetInternal(keyVersion, []byte(indexVersion))
		err = b.Batch(batch)
	}
	if err != nil {
		b.Close()
		return nil, fmt.Errorf("search: create index: %w", err)
	}
	return s, nil
}

// removeStore removes an index from dir: what is ours by name, nothing else.
func removeStore(dir string) error {
	for _, name := range []string{"index_meta.json", "index_meta.json_temp", "store"} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("search: %w", err)
		}
	}
	return nil
}

// Remove removes the index in dir, which no process may have open: for a store
// that has been replaced. Where there is none it does nothing.
func Remove(dir string) error {
	if err := removeStore(dir); err != nil {
		return err
	}
	// A folder that holds anything else is not only ours: it stays.
	if left, err := os.ReadDir(dir); err == nil && len(left) == 0 {
		return os.Remove(dir)
	}
	return nil
}

// dropBrokenSegments removes segment files whose checksum is wrong. Bleve maps
// segments without checking them, and a background merge that panics on one
// would take the process along. A removed segment that the index needs is an
// error at open; one that it does not need (left behind by a kill) is no loss.
func dropBrokenSegments(dir string, log *slog.Logger) error {
	names, err := filepath.Glob(filepath.Join(dir, "*.zap"))
	if err != nil {
		return &DamageError{err}
	}
	for _, name := range names {
		ok, err := segmentIsWhole(name)
		if err != nil {
			return &DamageError{err}
		}
		if !ok {
			log.Warn("search index has a damaged or unfinished segment; it is removed", "file", name)
			if err := os.Remove(name); err != nil {
				return &DamageError{err}
			}
		}
	}
	return nil
}

// segmentIsWhole checks a segment's last four bytes: the CRC-32 of all before.
func segmentIsWhole(name string) (bool, error) {
	f, err := os.Open(name)
	if err != nil {
		return false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() < 4 {
		return false, err
	}
	sum := crc32.NewIEEE()
	if _, err := io.Copy(sum, io.LimitReader(f, info.Size()-4)); err != nil {
		return false, err
	}
	var want [4]byte
	if _, err := io.ReadFull(f, want[:]); err != nil {
		return false, err
	}
	return binary.BigEndian.Uint32(want[:]) == sum.Sum32(), nil
}

func (s *store) close() (err error) {
	defer guard(&err)
	return s.bleve.Close()
}

// A view is one state of the index: what a search sees does not change under it.
type view struct {
	*scorch.IndexSnapshot
	segments []*scorch.SegmentSnapshot
	offsets  []uint64 // the number of each segment's first document
	size     uint64   // documents, deleted ones included
	totals   totals
	position position

	dictionaries map[string][]segment.TermDictionary
	walker       walker
	columns      *columns
}

// view must be closed.
func (s *store) view() (*view, error) {
	r, err := s.inner.Reader()
	if err != nil {
		return nil, &DamageError{err}
	}
	snapshot, ok := r.(*scorch.IndexSnapshot)
	if !ok {
		r.Close()
		return nil, &DamageError{fmt.Errorf("unknown reader %T", r)}
	}
	v := &view{IndexSnapshot: snapshot, segments: snapshot.Segments(), columns: &s.columns, dictionaries: map[string][]segment.TermDictionary{}}
	for _, seg := range v.segments {
		v.offsets = append(v.offsets, v.size)
		v.size += uint64(seg.FullSize())
	}
	if err := v.readInternal(); err != nil {
		r.Close()
		return nil, err
	}
	return v, nil
}

func (v *view) readInternal() error {
	t, err := v.GetInternal(keyTotals)
	if err == nil {
		v.totals, err = decodeTotals(t)
	}
	if err != nil {
		return &DamageError{err}
	}
	p, err := v.GetInternal(keyWatermark)
	if err == nil {
		v.position, err = decodePosition(p)
	}
	if err != nil {
		return &DamageError{err}
	}
	return nil
}

// record reads the record of a document by its number.
func (v *view) record(number uint64, r *record) error {
	i := len(v.offsets) - 1
	for i > 0 && v.offsets[i] > number {
		i--
	}
	err := errRecord
	visit := v.segments[i].VisitDocument(number-v.offsets[i], func(name string, _ byte, value []byte, _ []uint64) bool {
		if name != inRecord {
			return true
		}
		err = r.decode(value)
		return false
	})
	if visit != nil {
		return visit
	}
	return err
}

func decodePosition(b []byte) (position, error) {
	if len(b) == 0 {
		return position{}, nil
	}
	d := decoder{b: b}
	p := position{int64(d.long()), relay.MechaNumber(d.long())}
	if d.failed {
		return p, errRecord
	}
	return p, nil
}

func (p position) encode() []byte {
	return binary.AppendUvarint(binary.AppendUvarint(nil, uint64(p.revision)), uint64(p.id))
}
