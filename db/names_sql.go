package db

import (
	"fmt"

	"relay/db/cache"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// names caches a table of numbered strings in both directions. A number keeps its
// string for ever, since no number is given out twice. A string may get another number
// after its row was removed: drop and forget are for that, for changes by another
// process, and for removed Mechas. It is safe for concurrent use.
//
// Clients choose most words, so a cache bounds the memory that it takes. On disk, only the
// rates of the keys and the floor of free disk space bound the words. A word goes some time
// after its last message.
type names[T ~string] struct {
	byID   string // the query
	search func(c *sqlite.Conn, text T) (int64, error)
	text   *cache.Cache[int64, T]
	id     *cache.Cache[T, int64]
}

// cacheBytes bounds a cache whose pairs differ in size. A pair counts as the length of what it
// refers to and pairOverhead, which is about the room that it takes in a map.
var cacheBytes = 16 << 20

const pairOverhead = 64

func newNames[T ~string](byID string, search func(c *sqlite.Conn, text T) (int64, error)) *names[T] {
	return &names[T]{byID: byID, search: search, text: cache.New[int64, T](cacheBytes), id: cache.New[T, int64](cacheBytes)}
}

func newWords(search func(*sqlite.Conn, string) (int64, error)) *names[string] {
	return newNames("SELECT text FROM word WHERE id = ?", search)
}

func newMechas() *names[relay.Address] {
	return newNames("SELECT address FROM mecha WHERE id = ?", func(c *sqlite.Conn, a relay.Address) (id int64, err error) {
		_, err = c.Row(func(r *sqlite.Rows) {
			if r.Text(1) == string(a) { // the index knows no letter case
				id = r.Int(0)
			}
		}, "SELECT id, address FROM mecha WHERE address = ? AND removed_at IS NULL", string(a))
		return id, err
	})
}

func (n *names[T]) forget() {
	n.text.Forget()
	n.id.Forget()
}

// drop forgets that texts have numbers, since their rows were removed.
func (n *names[T]) drop(texts []T) {
	for _, text := range texts {
		n.id.Drop(text)
	}
}

func (n *names[T]) put(id int64, text T) {
	n.putText(id, text)
	n.id.Put(text, id, len(text)+pairOverhead)
}

// lookup gives the text of a number, which must exist; "" for 0. A transaction that may be rolled
// back gives found, which gets the text in the place of the cache, because numbers may then get
// another meaning; else found is nil.
func (n *names[T]) lookup(c *sqlite.Conn, id int64, found map[int64]T) (text T, err error) {
	if id == 0 {
		return "", nil
	}
	text, ok := found[id]
	if ok {
		return text, nil
	}
	if text, ok = n.text.Find(id); ok {
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

// putText adds a text only by its number, since find must not give a removed Mecha.
func (n *names[T]) putText(id int64, text T) {
	n.text.Put(id, text, len(text)+pairOverhead)
}

// publish moves what lookup has found in a transaction to the cache.
func (n *names[T]) publish(found map[int64]T) {
	for id, text := range found {
		n.putText(id, text)
	}
	clear(found)
}

// find gives the number of a text, 0 if it has none. Texts are compared exactly.
func (n *names[T]) find(c *sqlite.Conn, text T) (int64, error) {
	if id, ok := n.id.Find(text); ok {
		return id, nil
	}
	return n.search(c, text)
}
