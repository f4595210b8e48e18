package db

import (
	"errors"
	"testing"
	"time"

	"relay/db/internal/engine"
	"relay/db/relay"
)

// A transaction that is made again without one of its writes counts what is in the file, not what the
// first attempt has dropped.
func TestARoundAfterATransactionThatFailed(t *testing.T) {
	d := openHere(t, func(o *Options) { Learns(o, relay.DefaultHalfLife) })
	var ids []relay.MechaNumber
	for _, a := range []relay.Address{"alice^demo", "carol^travel", "dave^travel", "erin^travel", "frank^travel"} {
		ids = append(ids, mustIssue(t, d, a).Mecha.Number)
	}
	count := engine.WriteJobOf(d.w.Table, &relay.CountExchanges{At: time.Now(), HalfLife: relay.DefaultHalfLife, Limit: 1}, func(bool, error) {})
	err := d.wait(localWrite(func(t2 *engine.Tx) error {
		for _, id := range ids[1:] {
			a := relay.Acknowledge{At: time.Now(), Status: relay.Completed, Learns: true}
			LearningOf(d).Ended(t2, &a, &relay.Message{Sender: ids[0], Recipient: id}, "book", t2.Position(time.Now()))
		}
		return count.Apply(t2)
	}))
	if err != nil {
		t.Fatal(err)
	}
	held, release := make(chan struct{}), make(chan struct{})
	tried := 0
	for _, c := range []localWrite{
		func(*engine.Tx) error { close(held); <-release; return nil },
		func(t2 *engine.Tx) error {
			if tried++; tried > 1 {
				return nil
			}
			return LearningOf(d).MechaRemoved(t2, ids[2], time.Now())
		},
		func(t2 *engine.Tx) error { return count.Apply(t2) },
		func(*engine.Tx) error { return errors.New("a fault") },
	} {
		d.w.Submit(c, 0, func(error) {})
		<-held // the others come into one transaction
	}
	close(release)
	for range 2 {
		if err := d.wait(localWrite(func(t2 *engine.Tx) error { return count.Apply(t2) })); err != nil {
			t.Fatal(err)
		}
	}
	all, err := LearningOf(d).Learned(t.Context(), 0, 10)
	if err != nil || len(all) != 4 || tried != 2 {
		t.Errorf("after %d attempts, learned of %d Mechas: %+v, %v; want all 4", tried, len(all), all, err)
	}
}
