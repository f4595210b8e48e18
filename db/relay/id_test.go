package relay

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestIDs(t *testing.T) {
	s, err := NewIDs([]byte("a secret of a store, 32 bytes lo"))
	if err != nil {
		t.Fatal(err)
	}
	other, _ := NewIDs([]byte("another store's secret, as long."))
	positions := []Position{0, 1, 31, 32, 1 << 12, PositionAt(time.Now()), PositionAt(time.Now()) + 1, 1<<56 - 1}
	slices.Sort(positions)
	var before MessageID
	for _, p := range positions {
		id := s.Message(p)
		if len(id) != 30 || id[:4] != "msg_" {
			t.Errorf("%s is not of the form of an id", id)
		}
		if id <= before {
			t.Errorf("text order is not commit order: %s after %s", id, before)
		}
		before = id
		if back, ok := s.MessagePosition(id); !ok || back != p {
			t.Errorf("%s came back as %d, %v; want %d", id, back, ok, p)
		}
		if _, ok := other.MessagePosition(id); ok {
			t.Errorf("another store takes %s for its own", id)
		}
		if _, ok := s.ConversationPosition(ConversationID("conv_" + id[4:])); ok {
			t.Errorf("%s passes for a conversation", id)
		}
	}
}

func TestIDsThatWereNeverIssued(t *testing.T) {
	s, _ := NewIDs([]byte("a secret of a store, 32 bytes lo"))
	id := string(s.Message(PositionAt(time.Now())))
	flip := func(i int) string {
		c := byte('0')
		if id[i] == c {
			c = '1'
		}
		return id[:i] + string(c) + id[i+1:]
	}
	bad := []string{"", "msg_", id[:29], id + "0", strings.ToUpper(id), "Msg_" + id[4:], "msg_8" + id[5:], // more than 128 bits
		"msg_" + strings.Repeat("i", 26), "msg_" + strings.Repeat("0", 26), id[:10] + " " + id[11:], id[:10] + "é" + id[12:]}
	for i := 4; i < len(id); i++ {
		bad = append(bad, flip(i))
	}
	for _, b := range bad {
		if _, ok := s.MessagePosition(MessageID(b)); ok {
			t.Errorf("%q passes for an issued id", b)
		}
	}
}

func TestPositionsAndTimes(t *testing.T) {
	at := time.Date(2026, 11, 21, 8, 0, 0, 123_400_000, time.UTC)
	if got := PositionAt(at).Time(); !got.Equal(at.Truncate(time.Millisecond)) {
		t.Errorf("the time of a position is %s", got)
	}
	// A filter with a fraction below the millisecond starts at the next one.
	if PositionFrom(at) != PositionAt(at.Add(time.Millisecond)) {
		t.Error("positionFrom lets through what was before the time")
	}
	if whole := at.Truncate(time.Millisecond); PositionFrom(whole) != PositionAt(whole) {
		t.Error("positionFrom leaves out the time itself")
	}
	for _, far := range []time.Time{{}, time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)} {
		if p := PositionFrom(far); p < 0 {
			t.Errorf("%s has the position %d", far, p)
		}
	}
}

func TestKeyText(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		k := newSecret(keyPrefix)
		if len(k) != 52 || seen[k] || CheckKeyText(k) != nil {
			t.Fatalf("%s is not a key, or not a new one", k)
		}
		seen[k] = true
		for i := range k {
			c := byte('A')
			if k[i] == c {
				c = 'B'
			}
			if typo := k[:i] + string(c) + k[i+1:]; CheckKeyText(typo) == nil {
				t.Fatalf("the typo %s of %s passes", typo, k)
			}
		}
	}
	for _, bad := range []string{"", "mk_", newSecret(secretPrefix), newSecret(keyPrefix) + "A", " " + newSecret(keyPrefix)} {
		if ErrorCode(CheckKeyText(bad)) != MalformedKey {
			t.Errorf("%q passes for a key", bad)
		}
	}
}

// A tag is of its texts alone, of where each ends, and of the store's secret. Numbers made from tags are in files,
// so they must not change.
func TestTags(t *testing.T) {
	s, err := NewIDs([]byte("a secret of a store, 32 bytes lo"))
	if err != nil {
		t.Fatal(err)
	}
	other, _ := NewIDs([]byte("another store's secret, as long."))
	tag := func(s *IDs, texts ...string) (tag Tag) {
		for _, text := range texts {
			s.Extend(&tag, text)
		}
		return tag
	}
	seen := map[Tag][]string{}
	long := strings.Repeat("a", 50)
	for n := range len(long) {
		for m := range n + 1 {
			for _, texts := range [][]string{{long[:m], long[m:n]}, {long[:m], long[:n-m] + "\x00"}, {long[:m] + "b", long[:n-m]}} {
				got := tag(s, texts...)
				if before := seen[got]; before != nil && !slices.Equal(before, texts) {
					t.Fatalf("%q and %q have the same tag", before, texts)
				}
				seen[got] = texts
				if got != tag(s, texts...) || got == tag(other, texts...) {
					t.Fatalf("the tag of %q is not that of its texts and its store", texts)
				}
			}
		}
	}
	known := tag(s, "28", "alice^demo", "book")
	if n := known.Number(); n != 0x56214641 {
		t.Errorf("the number is %#x", n)
	}
}
