package db

import (
	"testing"

	"relay/db/internal/directory"
	"relay/db/internal/engine"
	"relay/db/internal/lessons"
	"relay/db/internal/progress"
	"relay/db/internal/retention"
	"relay/db/internal/sending"
	"relay/db/relay"
)

// The table has a row for each kind of write, but for those of a ring that is taken off, and every row
// for the type of its kind.
func TestTheTableOfWritesIsWhole(t *testing.T) {
	t.Parallel()
	all := newTable([]engine.Room{&directory.Directory{}, lessons.Registered()(nil, nil), &progress.Progress{}, &sending.Sending{}, &retention.Retention{}})
	for kind := 1; kind < relay.Kinds; kind++ {
		write := relay.NewWrite(kind)
		r, err := all.Of(write)
		switch write.(type) {
		case *relay.ForgetLearned, *relay.CountExchanges:
			if lessonsTeach == nil {
				continue
			}
		}
		if err != nil {
			t.Errorf("kind %d: %v", kind, err)
			continue
		}
		if j := r.Job(write, func(any, error) {}); j.Shared() != write {
			t.Errorf("kind %d: the job is of %T", kind, j.Shared())
		}
		r.Caller(write) // it has the type of the kind
	}
}
