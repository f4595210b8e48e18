package ring_test

import (
	"encoding/binary"
	"errors"
	"hash/crc64"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"relay/db/ring"
)

// A box is a ring on a file, opened again and again as a server opens it.
type box struct {
	*ring.Ring
	t       *testing.T
	options ring.Options
	path    string
	past    ring.Past
	found   map[uint64]uint32
}

func mustOpen(t *testing.T) *box {
	t.Helper()
	b := &box{t: t, path: filepath.Join(t.TempDir(), "relay.db"+ring.Suffix)}
	b.options = ring.Options{Store: 7, Mark: ring.Mark{1}, Unused: true, Skew: 5 * time.Minute, Logger: slog.New(slog.DiscardHandler)}
	b.open()
	b.options.Unused = false
	return b
}

func (b *box) open() {
	b.t.Helper()
	b.found = map[uint64]uint32{}
	b.options.Found = func(hashes []uint64, ends []uint32) {
		for i, h := range hashes {
			b.found[h] = ends[i]
		}
	}
	var err error
	if b.Ring, b.past, err = ring.Open(b.path, b.options); err != nil {
		b.t.Fatal(err)
	}
	maps.DeleteFunc(b.found, func(_ uint64, end uint32) bool { return end < uint32(b.past.Began/time.Second) })
	b.t.Cleanup(func() { b.Close() })
}

// again opens the ring as the next server does. Without a Close before it, the last server
// was killed.
func (b *box) again() {
	b.t.Helper()
	b.options.Last = b.options.Mark
	b.options.Mark[0]++
	b.open()
}

func (b *box) add(from, n int, second uint32, life uint16) {
	b.t.Helper()
	for i := from; i < from+n; i++ {
		if err := b.Add(uint64(2*i+1), second, life); err != nil {
			b.t.Fatal(err)
		}
	}
}

// want expects that Open has found exactly these nonces, and that it counts the ring as
// whole, or not.
func (b *box) want(from, n int, whole bool) {
	b.t.Helper()
	for i := from; i < from+n; i++ {
		if _, ok := b.found[uint64(2*i+1)]; !ok {
			b.t.Fatalf("nonce %d of %d to %d is missing", i, from, from+n-1)
		}
	}
	if len(b.found) != n {
		b.t.Errorf("%d nonces were found, want %d", len(b.found), n)
	}
	if b.past.Whole != whole {
		b.t.Errorf("whole: %v, want %v (%+v)", b.past.Whole, whole, b.past)
	}
	if complete := b.past.Since < b.past.Began; complete != whole {
		b.t.Errorf("every nonce was found: %v, want %v (%+v)", complete, whole, b.past)
	}
	if refuses := b.past.Floor == b.past.Began; refuses == whole {
		b.t.Errorf("earlier requests are refused: %v (%+v)", refuses, b.past)
	}
}

const many = 40_000 // more than two segments

func TestNoncesSurviveAKillAndAStop(t *testing.T) {
	b := mustOpen(t)
	b.want(0, 0, true) // nothing can have been lost
	b.add(0, many, 10, 300)
	b.again() // killed
	b.want(0, many, true)
	b.add(many, 5, uint32(b.past.Began/time.Second), 300)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	b.again()
	b.want(0, many+5, true)
	b.again() // killed before its first request
	b.want(0, many+5, true)
	if b.past.Began < 10*time.Second {
		t.Errorf("running time went back to %v", b.past.Began)
	}
	if b.found[1] != 310 {
		t.Errorf("a nonce of 300 s from second 10 on is refused until second %d", b.found[1])
	}
}

func TestManyStartsNeedLittleRoom(t *testing.T) {
	b := mustOpen(t)
	for i := range 100 {
		b.add(i, 1, uint32(b.past.Began/time.Second), 1000)
		b.again()
		b.want(0, i+1, true)
	}
	if info, err := os.Stat(b.path); err != nil || info.Size() > 1<<20 {
		t.Errorf("%d bytes, %v", info.Size(), err)
	}
}

// A ring that may lack nonces is not believed, but the nonces that it has are refused.
func TestARingThatMayLackNonces(t *testing.T) {
	boot := func(text []byte) { text[32]++ }
	for name, row := range map[string]struct {
		spoil func(*box)
		kept  bool // the nonces are still found
		whole bool
	}{
		"nothing":                  {func(*box) {}, true, true},
		"reboot":                   {func(b *box) { b.edit(boot) }, true, false},
		"reboot after a stop":      {func(b *box) { b.Close(); b.edit(boot) }, true, true},
		"a start without it":       {func(b *box) { b.options.Mark = ring.Mark{99} }, true, false},
		"a database without mark":  {func(b *box) { b.options.Mark = ring.Mark{} }, true, false},
		"a copy of itself":         {func(b *box) { b.Close(); b.replace(b.bytes()) }, true, false},
		"removed":                  {func(b *box) { b.remove() }, false, false},
		"empty":                    {func(b *box) { b.Close(); b.truncate(0) }, false, false},
		"of another database":      {func(b *box) { b.options.Store++ }, false, false},
		"a header that is damaged": {func(b *box) { b.damage(20) }, false, false},
		"an entry that is damaged": {func(b *box) { b.add(100, 1, 1, 1000); b.damage(1<<18 + 100*16) }, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := mustOpen(t)
			b.t = t
			b.add(0, 100, 1, 1000)
			row.spoil(b)
			b.again()
			n := 0
			if row.kept {
				n = 100
			}
			b.want(0, n, row.whole)
			// A request that was refused stays refused after the next stop, even if that comes
			// in the second of this start. But the ring is whole again.
			floor := b.past.Floor
			b.add(200, 1, uint32(b.past.Began/time.Second), 1000)
			b.Close()
			b.again()
			if b.past.Floor < floor || !row.whole && b.past.Floor < b.past.Began || !b.past.Whole {
				t.Errorf("%+v, and the floor was %v", b.past, floor)
			}
		})
	}
}

func (b *box) bytes() []byte {
	b.t.Helper()
	text, err := os.ReadFile(b.path)
	if err != nil {
		b.t.Fatal(err)
	}
	return text
}

func (b *box) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *box) remove()          { b.t.Helper(); b.must(os.Remove(b.path)) }
func (b *box) truncate(n int64) { b.t.Helper(); b.must(os.Truncate(b.path, n)) }

// replace puts another file into the place of the ring.
func (b *box) replace(text []byte) {
	b.t.Helper()
	b.must(os.WriteFile(b.path+".copy", text, 0o600))
	b.must(os.Rename(b.path+".copy", b.path))
}

func (b *box) damage(offset int) {
	b.t.Helper()
	text := b.bytes()
	text[offset] ^= 1
	b.must(os.WriteFile(b.path, text, 0o600))
}

// edit changes the header, whose 96 bytes have a checksum behind them.
func (b *box) edit(f func([]byte)) {
	b.t.Helper()
	text := b.bytes()
	const length = 96
	f(text)
	binary.LittleEndian.PutUint64(text[length:], crc64.Checksum(text[:length], crc64.MakeTable(crc64.ECMA)))
	b.must(os.WriteFile(b.path, text, 0o600))
}

// A greater clock skew makes older timestamps acceptable, whose nonces are forgotten.
func TestAGreaterSkewRevivesNoRequest(t *testing.T) {
	b := mustOpen(t)
	b.options.Skew = 15 * time.Minute // from the next start on
	b.add(0, 1, 2000, 300)
	b.Close()
	b.again()
	if want := b.past.Began - 5*time.Minute; b.past.Floor != want {
		t.Errorf("the floor is %v, want %v", b.past.Floor, want)
	}
}

func TestForgottenNoncesGiveTheirRoom(t *testing.T) {
	b := mustOpen(t)
	for i := range 20 {
		b.add(i*many, many, uint32(i*400), 300)
	}
	if size := len(b.bytes()); size > 8<<18 {
		t.Errorf("%d bytes for %d nonces at a time", size, many)
	}
	b.again()
	b.want(19*many, many, true)
}

func TestTheRingHasABound(t *testing.T) {
	b := mustOpen(t)
	b.Close()
	b.options.MaxNonces = 100
	b.again()
	n := 0
	for ; n < 1<<20; n++ {
		if err := b.Add(uint64(2*n+1), 100, 300); errors.Is(err, ring.ErrFull) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if n < 100 || n == 1<<20 {
		t.Fatalf("full at %d", n)
	}
	b.add(n, 1, 500, 300) // the others are forgotten by now
}

// Another process that cuts the file off must not end this one. The file may then lack
// nonces, so it is removed.
func TestARingThatIsCutOff(t *testing.T) {
	for name, add := range map[string]int{"in the mapping": 1, "at the next segment": 1 << 14, "at the end": 0} {
		t.Run(name, func(t *testing.T) {
			b := mustOpen(t)
			b.t = t
			b.add(0, 10, 1, 1000)
			b.truncate(1 << 18)
			b.add(10, add, 1, 1000)
			b.must(b.Close())
			if _, err := os.Stat(b.path); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the file is still there: %v", err)
			}
			b.again()
			b.want(0, 0, false)
		})
	}
}

// A file to which a link at the ring's path leads is not overwritten.
func TestALinkIsNotFollowed(t *testing.T) {
	for name, link := range map[string]func(string, string) error{"symbolic": os.Symlink, "hard": os.Link} {
		t.Run(name, func(t *testing.T) {
			b := mustOpen(t)
			b.Close()
			precious := filepath.Join(t.TempDir(), "precious")
			if err := errors.Join(os.WriteFile(precious, []byte("text"), 0o600), os.Remove(b.path), link(precious, b.path)); err != nil {
				t.Fatal(err)
			}
			b.again()
			b.add(1, 1, 10, 100)
			if text, err := os.ReadFile(precious); string(text) != "text" {
				t.Errorf("it is %.20q now, %v", text, err)
			}
		})
	}
}
