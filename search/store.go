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
	"go.etcd.io/bbolt"
	bolt "go.etcd.io/bbolt/errors"
)

// Keys of the values that the index stores with its documents, in the same batch.
var (
	keyVersion   = []byte("relay.version")
	keyWatermark = []byte("relay.watermark")
	keyTotals    = []byte("relay.totals")
	keyRecent    = []byte("relay.recent")
)

var (
	errLocked  = errors.New("search: the index is in use by another process")
	errVersion = errors.New("search: the index has another version")
	errNoIndex = errors.New("search: there is no index")
)

// A DamageError says that the index cannot be used. Clients never see it; the index is
// rebuilt from the store.
type DamageError struct{ Cause error }

func (e *DamageError) Error() string { return "search: damaged index: " + e.Cause.Error() }

// Unwrap returns the cause, for errors.Is.
func (e *DamageError) Unwrap() error { return e.Cause }

// recoverDamage turns a panic into a DamageError. Bleve panics on some damaged
// files, which must not end the process.
func recoverDamage(err *error) {
	if p := recover(); p != nil {
		*err = &DamageError{fmt.Errorf("panic: %v", p)}
	}
}

// panicOnFault makes a fault in mapped memory, as from a segment that has been
// truncated, a panic of this goroutine, which recoverDamage recovers from. It
// returns a function that ends this.
func panicOnFault() func() {
	before := debug.SetPanicOnFault(true)
	return func() { debug.SetPanicOnFault(before) }
}

// A position is the revision of an entry that was applied, and its Mecha.
type position struct {
	revision int64
	id       relay.MechaNumber
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

// A store is one bleve index in a folder. Any goroutine may call its methods, but
// only one may write.
type store struct {
	bleve bleve.Index
	inner index.Index

	columns columns
	records recordCache
	lost    string // why an older state was opened, since the newest is damaged, or ""
}

// Documents are analysed by one worker instead of bleve's four: on two cores a
// rebuild with four is not faster, and messages wait longer.
func init() { bleve.Config.SetAnalysisQueueSize(1) }

const lockTimeout = 2 * time.Second

// runtimeConfig limits how long bleve waits for bolt's lock, and lets it keep one
// snapshot, because an index that has no usable one is rebuilt from the store.
func runtimeConfig() map[string]any {
	return map[string]any{"bolt_timeout": lockTimeout.String(), "numSnapshotsToKeep": 1}
}

// openStore opens the index in dir. It fails with errNoIndex, errLocked,
// errVersion or a *DamageError. If only the newest state is damaged, bleve opens
// the one before, whose watermark is lower; Follow then applies the rest again.
func openStore(dir string, log *slog.Logger) (s *store, err error) {
	defer recoverDamage(&err)
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
	if err := removeBrokenSegments(filepath.Join(dir, "store"), log); err != nil {
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

// compare sets lost if a state older than the newest was opened.
func (s *store) compare(newest position) error {
	v, err := s.view()
	if err != nil {
		return err
	}
	defer v.Close()
	if at := v.position.revision; at < newest.revision {
		s.lost = fmt.Sprintf("search: damaged index: its newest state, of revision %d, cannot be opened; "+
			"continuing from the one before, of revision %d", newest.revision, at)
	}
	return nil
}

// newestPosition reads the watermark of the newest state in root.bolt, whether or not
// that state can be opened: bleve does not report that it opened an older one.
//
// It also refuses a truncated file. Bolt maps the file into memory without
// checking its size, so a missing page would end the process in one of bleve's
// own goroutines.
func newestPosition(file string) (p position, err error) {
	info, err := os.Stat(file)
	if err != nil || info.Size() == 0 {
		return p, nil // bleve reports the error
	}
	defer recoverDamage(&err)
	defer panicOnFault()()
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
			return fmt.Errorf("root.bolt is truncated: it has %d bytes of %d", info.Size(), tx.Size())
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
		return &DamageError{errors.New("the first batch is missing")}
	}
	return errVersion
}

// createStore creates an empty index in dir, which must not have one.
func createStore(dir string) (s *store, err error) {
	defer recoverDamage(&err)
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

// removeStore removes the files of an index from dir, and no others.
func removeStore(dir string) error {
	for _, name := range []string{"index_meta.json", "index_meta.json_temp", "store"} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("search: %w", err)
		}
	}
	return nil
}

// Remove removes the index in the folder dir, and the folder if nothing else is in
// it. Use it after the store has been replaced; no process may have the index
// open. If there is no index, Remove does nothing.
func Remove(dir string) error {
	if err := removeStore(dir); err != nil {
		return err
	}
	if left, err := os.ReadDir(dir); err == nil && len(left) == 0 {
		return os.Remove(dir)
	}
	return nil
}

// removeBrokenSegments removes the segment files with a wrong checksum. Bleve maps
// segments without checking them, and a panic in its merging goroutine would end the
// process. If the index needs a removed segment, opening fails; otherwise, as with a
// segment left behind by a killed process, nothing is lost.
func removeBrokenSegments(dir string, log *slog.Logger) error {
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
			log.Warn("removing a damaged or unfinished segment of the search index", "file", name)
			if err := os.Remove(name); err != nil {
				return &DamageError{err}
			}
		}
	}
	return nil
}

// segmentIsWhole checks the checksum of a segment: its last four bytes are the
// CRC-32 of the others.
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
	defer recoverDamage(&err)
	return s.bleve.Close()
}
