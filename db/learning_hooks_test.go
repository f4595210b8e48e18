package db

import (
	"fmt"
	"time"

	"relay/db/internal/engine"
	"relay/db/learning"
	"relay/db/relay"
)

func init() {
	Learns = func(o *Options, halfLife time.Duration) { o.Lessons = learning.With(halfLife) }
	lessonsTeach = func(at time.Time, of relay.Address) []relay.Write {
		return []relay.Write{&relay.ForgetLearned{At: at, Address: of}, &relay.CountExchanges{At: at, HalfLife: time.Hour, Limit: 5}}
	}
	forgetLearned = func(d *DB, at time.Time, of relay.Address) error {
		return LearningOf(d).ForgetLearned(&relay.ForgetLearned{At: at, Address: of})
	}
	lessonsLocal = func(d *DB) []engine.Background { return LearningOf(d).Local() }
	exchangesOf = func(row relay.Position, text string) (all []string, err error) {
		exchanges, err := learning.ReadExchanges(nil, row, text)
		for _, e := range exchanges {
			all = append(all, fmt.Sprintf("exchange %+v", e))
		}
		return all, err
	}
}

// LearningOf is the room of a store that learns.
func LearningOf(d *DB) *learning.Learning { return d.Lessons().(*learning.Learning) }
