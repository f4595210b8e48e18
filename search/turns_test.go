package search_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"relay/db/relay"
	"relay/db/scratch"
	"relay/search"
)

// One Mecha has 64 searches under way, none of which ends. Another one's are all
// answered meanwhile.
func TestSearchesOfOneMechaDoNotHoldUpOthers(t *testing.T) {
	t.Parallel()
	x, err := search.Open(scratch.Dir(t), search.Options{Concurrency: 2, Wait: patience, Budget: patience})
	if err != nil {
		t.Fatal(err)
	}
	s := newShelf(travel()...)
	followed := make(chan struct{})
	go func() { defer close(followed); x.Follow(context.Background(), s) }()
	waitFor(t, x, s.last)
	const searches = 64
	release := make(chan struct{})
	began := make(chan struct{}, searches)
	hold := func(relay.MechaNumber) bool {
		select {
		case <-release:
		default:
			began <- struct{}{}
			<-release
		}
		return true
	}
	var heavy sync.WaitGroup
	for range searches {
		heavy.Go(func() {
			if _, err := x.Search(context.Background(), search.Request{Query: "flights", Caller: "greedy^acme", Online: hold}); err != nil {
				t.Error(err)
			}
		})
	}
	<-began
	for range searches {
		mustSearch(t, x, search.Request{Query: "flights", Caller: "alice^acme"})
	}
	close(release)
	heavy.Wait()
	x.Close()
	<-followed
}

// Searches that wait in vain because of their caller's own are told so.
func TestSearchesThatWaitForTheirCallersOwn(t *testing.T) {
	t.Parallel()
	x, err := search.Open(scratch.Dir(t), search.Options{Concurrency: 2, Wait: 20 * time.Millisecond, Budget: patience})
	if err != nil {
		t.Fatal(err)
	}
	s := newShelf(travel()...)
	followed := make(chan struct{})
	go func() { defer close(followed); x.Follow(context.Background(), s) }()
	waitFor(t, x, s.last)
	release := make(chan struct{})
	var held sync.WaitGroup
	hold := func(caller relay.Address) {
		began := make(chan struct{})
		first := sync.OnceFunc(func() { close(began); <-release })
		held.Go(func() {
			if _, err := x.Search(context.Background(), search.Request{Query: "flights", Caller: caller,
				Online: func(relay.MechaNumber) bool { first(); return true }}); err != nil {
				t.Error(err)
			}
		})
		<-began
	}
	hold("greedy^acme")
	if _, err := x.Search(context.Background(), search.Request{Query: "flights", Caller: "greedy^acme"}); !errors.Is(err, search.ErrCallerBusy) {
		t.Errorf("its second search: %v", err)
	}
	mustSearch(t, x, search.Request{Query: "flights", Caller: "alice^acme"})
	hold("bob^acme")
	if _, err := x.Search(context.Background(), search.Request{Query: "flights", Caller: "alice^acme"}); !errors.Is(err, search.ErrBusy) {
		t.Errorf("when all places are taken by others: %v", err)
	}
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := x.Search(gone, search.Request{Query: "flights", Caller: "alice^acme"}); !errors.Is(err, context.Canceled) {
		t.Errorf("of a client that has gone: %v", err)
	}
	close(release)
	held.Wait()
	for range 10 {
		mustSearch(t, x, search.Request{Query: "flights", Caller: "greedy^acme"})
	}
	x.Close()
	<-followed
}
