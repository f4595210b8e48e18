package db

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"relay/db/internal/engine"
	"relay/db/internal/sqlite"
	"relay/db/relay"
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
	got, err := readExchanges(nil, row, text)
	if err != nil || !reflect.DeepEqual(got, all) {
		t.Errorf("%q is read as %+v, %v", text, got, err)
	}
	whole := 1
	for n := range text {
		got, err := readExchanges(nil, row, text[:n])
		if n == len(writeExchanges(row, all[:whole])) {
			whole++
			err = sqlite.ErrDamaged // the end of an exchange
		}
		if n > 0 && !errors.Is(err, sqlite.ErrDamaged) {
			t.Errorf("%q is read as %+v, %v", text[:n], got, err)
		}
	}
	for _, bad := range []string{"\n", "1 2 3 4 5\n\n", "0 1 2 1 3 x\n\n", "0 1 2 1 3 -1\n\n", "-1 1 2 1 3 0\n\n", "0 1 2 1 3 99999999999999999999\nbook\n", "0 1 2 1 3 4\nbookX"} {
		if got, err := readExchanges(nil, row, bad); !errors.Is(err, sqlite.ErrDamaged) {
			t.Errorf("%q is read as %+v, %v", bad, got, err)
		}
	}
}

// A transaction that is made again without one of its writes counts what is in the file, not what the
// first attempt has dropped.
func TestARoundAfterATransactionThatFailed(t *testing.T) {
	d := openHere(t, func(o *Options) { o.LearnHalfLife = relay.DefaultHalfLife })
	var ids []relay.MechaNumber
	for _, a := range []relay.Address{"alice^demo", "carol^travel", "dave^travel", "erin^travel", "frank^travel"} {
		ids = append(ids, mustIssue(t, d, a).Mecha.Number)
	}
	count := engine.TaskOf(d.w.Table, &relay.CountExchanges{At: time.Now(), HalfLife: relay.DefaultHalfLife, Most: 1}, func(bool, error) {})
	err := d.wait(chored(func(t2 *engine.Tx) error {
		for _, id := range ids[1:] {
			d.learning.brought = append(d.learning.brought, exchange{id, t2.Position(time.Now()), ids[0], true, 489_000, "book"})
		}
		return count.Apply(t2)
	}))
	if err != nil {
		t.Fatal(err)
	}
	held, release := make(chan struct{}), make(chan struct{})
	tried := 0
	for _, c := range []chored{
		func(*engine.Tx) error { close(held); <-release; return nil },
		func(t2 *engine.Tx) error {
			if tried++; tried > 1 {
				return nil
			}
			return d.learning.dropExchanges(t2, ids[2], false)
		},
		func(t2 *engine.Tx) error { return count.Apply(t2) },
		func(*engine.Tx) error { return errors.New("a fault") },
	} {
		d.w.Submit(c, 0, func(error) {})
		<-held // the others come into one transaction
	}
	close(release)
	for range 2 {
		if err := d.wait(chored(func(t2 *engine.Tx) error { return count.Apply(t2) })); err != nil {
			t.Fatal(err)
		}
	}
	all, err := d.Learned(t.Context(), 0, 10)
	if err != nil || len(all) != 4 || tried != 2 {
		t.Errorf("after %d attempts, learned of %d Mechas: %+v, %v; want all 4", tried, len(all), all, err)
	}
}
