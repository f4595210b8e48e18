package db

import (
	"fmt"
	"time"

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

// dictionary is the room of words and addresses: it gives them their numbers. It has what the
// present transaction has found and made, which the caches get once that is committed.
type dictionary struct {
	quiet
	w           *writer
	used        *cache.Cache[int64, relay.Position] // word.used of recent words, as the file has it
	words       map[string]int64                    // words that were found or made; 0 for a removed one
	mechas      map[relay.Address]int64             // Mechas that were found or made; 0 for a removed one
	forgotten   []string                            // words that were removed
	foundWords  map[int64]string                    // texts that were read by their numbers
	foundMechas map[int64]relay.Address             // likewise
}

func newDictionary(w *writer) *dictionary {
	return &dictionary{w: w, used: cache.New[int64, relay.Position](maxWordsUsed), words: map[string]int64{},
		mechas: map[relay.Address]int64{}, foundWords: map[int64]string{}, foundMechas: map[int64]relay.Address{}}
}

func (d *dictionary) Begin(t *tx) {
	d.w.lateWords.Begin()
	clear(d.words)
	clear(d.mechas)
	clear(d.foundWords)
	clear(d.foundMechas)
	d.forgotten = d.forgotten[:0]
	t.foundWords, t.foundMechas = d.foundWords, d.foundMechas
}

func (d *dictionary) Board(t *tx) error { return t.lateWords.Board(t.c, nil) }

func (d *dictionary) Arrived(t *tx) {
	w := d.w
	w.words.drop(d.forgotten)
	for text, id := range d.words {
		if id != 0 {
			w.words.put(id, text)
		}
	}
	for address, id := range d.mechas {
		if id != 0 {
			w.mechas.put(id, address)
		}
	}
	w.words.publish(d.foundWords)
	w.mechas.publish(d.foundMechas)
	if t.changed&entriesChanged != 0 { // a Mecha may have been removed
		w.mechas.forget()
	}
	t.lateWords.Arrived(0, nil, nil)
}

func (d *dictionary) Forget() {
	d.w.mechas.forget()
	d.used.Forget()
}

func (d *dictionary) Flush() { d.w.lateWords.Flush(d.w.mayWrite, d.w.commitRows) }

// word gives the word of a number, address the address of a Mecha's number; "" for 0.
func word(x *rx, id int64) (string, error) { return x.words.lookup(x.c, id, x.foundWords) }
func address(x *rx, id int64) (relay.Address, error) {
	return x.mechas.lookup(x.c, id, x.foundMechas)
}

// mecha gives the number of an address, 0 if it is not registered.
func (d *dictionary) mecha(t *tx, a relay.Address) (relay.MechaNumber, error) {
	if id, ok := d.mechas[a]; ok {
		return relay.MechaNumber(id), nil
	}
	id, err := t.lookups.mechas.find(t.c, a)
	if err == nil && id != 0 {
		d.mechas[a] = id
	}
	return relay.MechaNumber(id), err
}

// intern gives the number of a word for a row of the present write, and adds the word
// if it is new.
func (d *dictionary) intern(t *tx, text string) (int64, error) {
	id, ok := d.words[text]
	if !ok {
		var err error
		if id, err = t.lookups.words.find(t.c, text); err != nil {
			return 0, err
		}
	}
	if id != 0 { // 0 may also mean that this transaction has removed the word
		d.words[text] = id
		return id, d.useWord(t, id)
	}
	return d.addWord(t, text)
}

// isRemoved tells whether this transaction has removed a word, of which the caches do
// not know yet.
func (d *dictionary) isRemoved(t *tx, text string) bool {
	id, known := d.words[text]
	return known && id == 0
}

// wordSlack is how far word.used may be behind the last use of a word. So the words of
// all messages are written once an hour, not with every message.
const wordSlack = relay.Position(time.Hour/time.Millisecond) << relay.PositionBits

// useWord notes that the present write uses a word.
func (d *dictionary) useWord(t *tx, id int64) error {
	p := t.next(t.now)
	used, known := d.used.Find(id)
	if !known {
		n, err := t.c.Number("SELECT used FROM word WHERE id = ?", id)
		if err != nil {
			return err
		}
		used = relay.Position(n)
	}
	if p-used > wordSlack {
		if err := t.c.Exec("UPDATE word SET used = ? WHERE id = ?", int64(p), id); err != nil {
			return err
		}
		used, known = p, false
	}
	if !known {
		d.used.Put(id, used, 1)
	}
	return nil
}

const maxWordsUsed = 1 << 16 // words, of whose use the writer has a cache
