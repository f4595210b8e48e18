package http_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"relay/db"
	"relay/db/relay"
	"relay/search"
)

// index is the search index of a server. It is opened when it is first used, because most
// tests search for nothing, and an index costs about as much as all the rest of a server.
type index struct {
	path  string
	db    *db.DB
	found func() // called between what the index finds and what the directory then says of it; may be nil

	mu     sync.Mutex // held while the index is opened
	opened atomic.Pointer[search.Index]
}

// boost is for a ring that ranks by what a store has learned.
var boost = func(*db.DB) search.Boost { return nil }

// open returns the index, which has caught up with the directory at least once.
func (i *index) open() (*search.Index, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if x := i.opened.Load(); x != nil {
		return x, nil
	}
	x, err := search.Open(i.path, search.Options{Wait: patience, Budget: patience, Boost: boost(i.db)})
	if err != nil {
		return nil, err
	}
	i.opened.Store(x)
	go x.Follow(context.Background(), i.db)
	for end := time.Now().Add(patience); !x.Ready(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return nil, errors.New("the index does not catch up with the directory")
		}
	}
	return x, nil
}

// Wake tells the index, if it is open, that the directory has changed.
func (i *index) Wake() {
	if x := i.opened.Load(); x != nil {
		x.Wake()
	}
}

func (i *index) Ready() bool {
	x, err := i.open()
	return err == nil && x.Ready()
}

// Search lets the directory change, if the test wants that, before it is asked for the
// profiles of what was found, and after.
func (i *index) Search(ctx context.Context, q relay.SearchRequest) (*relay.SearchResult, error) {
	x, err := i.open()
	if err != nil {
		return nil, err
	}
	if i.found == nil {
		return x.Search(ctx, q)
	}
	look := q.Lookup
	q.Lookup = func(ctx context.Context, ids []relay.MechaNumber) ([]relay.Entry, error) {
		i.found()
		return look(ctx, ids)
	}
	result, err := x.Search(ctx, q)
	i.found()
	return result, err
}

func (i *index) close() error {
	if x := i.opened.Load(); x != nil {
		return x.Close()
	}
	return nil
}
