package learning

import (
	"errors"
	"reflect"
	"testing"

	"relay/db/internal/sqlite"
)

// A row of exchanges is read as it was written, whatever its words are. One that is cut short or changed
// is damage, and no other exchanges.
func TestARowOfExchanges(t *testing.T) {
	const row = 1 << 50
	all := []exchange{
		{recipient: 1, position: row, sender: 2, completed: true, hour: 489_000, words: "book\nflight"},
		{recipient: 1 << 40, position: row + 1<<20, sender: 1, hour: 1, words: "größe\n9 9\n\n1 2 3 4 5 6"},
		{recipient: 1, position: row + 1<<20 + 1, sender: 3, words: ""},
	}
	text := writeExchanges(row, all)
	got, err := ReadExchanges(nil, row, text)
	if err != nil || !reflect.DeepEqual(got, all) {
		t.Errorf("%q is read as %+v, %v", text, got, err)
	}
	whole := 1
	for n := range text {
		got, err := ReadExchanges(nil, row, text[:n])
		if n == len(writeExchanges(row, all[:whole])) {
			whole++
			err = sqlite.ErrDamaged // the end of an exchange
		}
		if n > 0 && !errors.Is(err, sqlite.ErrDamaged) {
			t.Errorf("%q is read as %+v, %v", text[:n], got, err)
		}
	}
	for _, bad := range []string{"\n", "1 2 3 4 5\n\n", "0 1 2 1 3 x\n\n", "0 1 2 1 3 -1\n\n", "-1 1 2 1 3 0\n\n", "0 1 2 1 3 99999999999999999999\nbook\n", "0 1 2 1 3 4\nbookX"} {
		if got, err := ReadExchanges(nil, row, bad); !errors.Is(err, sqlite.ErrDamaged) {
			t.Errorf("%q is read as %+v, %v", bad, got, err)
		}
	}
}
