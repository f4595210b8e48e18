package names

import (
	"fmt"

	"relay/db/cache"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// Cache caches a table of numbered strings in both directions. A number keeps its string
// forever, since no number is used twice. A string may get another number after its row was
// removed: Drop and Forget are for that, for changes by another process, and for removed
// Mechas. It is safe for concurrent use.
//
// Clients choose most words, so a cache bounds the memory that it takes. On disk, only the
// rates of the keys and the floor of free disk space bound the words. A word goes some time
// after its last message.
type Cache[T ~string] struct {
	byID   string // the query
	search func(c *sqlite.Conn, text T) (int64, error)
	Text   *cache.Cache[int64, T]
	ID     *cache.Cache[T, int64]
}

// CacheBytes bounds a cache whose pairs differ in size. A pair counts as the length of its
// text plus PairOverhead, about the room that it takes in a map.
var CacheBytes = 16 << 20

const PairOverhead = 64

func NewCache[T ~string](byID string, search func(c *sqlite.Conn, text T) (int64, error)) *Cache[T] {
	return &Cache[T]{byID: byID, search: search, Text: cache.New[int64, T](CacheBytes), ID: cache.New[T,
		int64](CacheBytes)}
}

func newWords(search func(*sqlite.Conn, string) (int64, error)) *Cache[string] {
	return NewCache("SELECT text FROM word WHERE id = ?", search)
}

func newMechas() *Cache[relay.Address] {
	return NewCache("SELECT address FROM mecha WHERE id = ?", func(c *sqlite.Conn, a relay.Address) (id int64, err error) {
		_, err = c.Row(func(r *sqlite.Rows) {
			if r.Text(1) == string(a) { // the index ignores letter case
				id = r.Int(0)
			}
		}, "SELECT id, address FROM mecha WHERE address = ? AND removed_at IS NULL", string(a))
		return id, err
	})
}

func (n *Cache[T]) Forget() {
	n.Text.Forget()
	n.ID.Forget()
}

// Drop forgets that texts have numbers, since their rows were removed.
func (n *Cache[T]) Drop(texts []T) {
	for _, text := range texts {
		n.ID.Drop(text)
	}
}

func (n *Cache[T]) Put(id int64, text T) {
	n.putText(id, text)
	n.ID.Put(text, id, len(text)+PairOverhead)
}

// Lookup returns the text of a number, which must exist, or "" for 0. A transaction that may be
// rolled back passes found, which gets the text instead of the cache, because numbers may then get
// another meaning; else found is nil.
func (n *Cache[T]) Lookup(c *sqlite.Conn, id int64, found map[int64]T) (text T, err error) {
	if id == 0 {
		return "", nil
	}
	text, ok := found[id]
	if ok {
		return text, nil
	}
	if text, ok = n.Text.Find(id); ok {
		return text, nil
	}
	ok, err = c.Row(func(r *sqlite.Rows) { text = T(r.Text(0)) }, n.byID, id)
	switch {
	case err != nil:
	case !ok:
		err = fmt.Errorf("%w: a row has the number %d, which %q does not find", sqlite.ErrDamaged, id, n.byID)
	case found != nil:
		found[id] = text
	default:
		n.putText(id, text)
	}
	return text, err
}

// putText adds a text only by its number, since Find must not return a removed Mecha.
func (n *Cache[T]) putText(id int64, text T) {
	n.Text.Put(id, text, len(text)+PairOverhead)
}

// Publish moves the texts that Lookup has found in a transaction to the cache.
func (n *Cache[T]) Publish(found map[int64]T) {
	for id, text := range found {
		n.putText(id, text)
	}
	clear(found)
}

// Find returns the number of a text, or 0. Texts are compared exactly.
func (n *Cache[T]) Find(c *sqlite.Conn, text T) (int64, error) {
	if id, ok := n.ID.Find(text); ok {
		return id, nil
	}
	return n.search(c, text)
}
