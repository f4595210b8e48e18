package db

import (
	"fmt"
	"sync"
	"time"

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
	mu     sync.RWMutex
	text   generations[int64, T]
	id     generations[T, int64]
}

func newWords(search func(*sqlite.Conn, string) (int64, error)) *names[string] {
	return &names[string]{byID: "SELECT text FROM word WHERE id = ?", search: search}
}

func newMechas() *names[relay.Address] {
	return &names[relay.Address]{byID: "SELECT address FROM mecha WHERE id = ?", search: func(c *sqlite.Conn, a relay.Address) (id int64, err error) {
		_, err = c.Row(func(r *sqlite.Rows) {
			if r.Text(1) == string(a) { // the index knows no letter case
				id = r.Int(0)
			}
		}, "SELECT id, address FROM mecha WHERE address = ? AND removed_at IS NULL", string(a))
		return id, err
	}}
}

func (n *names[T]) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.text, n.id = generations[int64, T]{}, generations[T, int64]{}
}

// drop forgets that texts have numbers, since their rows were removed.
func (n *names[T]) drop(texts []T) {
	if len(texts) == 0 {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, text := range texts {
		delete(n.id.young, text)
		delete(n.id.old, text)
	}
}

func (n *names[T]) put(id int64, text T) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.text.put(id, text, len(text))
	n.id.put(text, id, len(text))
}

// known gives the number of a text, if the cache has it.
func (n *names[T]) known(text T) (id int64, ok bool) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	id, ok, _ = n.id.find(text)
	return id, ok
}

// generations is a cache in two halves. When the young half is full, it takes the place of
// the old one, which is dropped. A pair that is found in the old half moves to the young
// one. So a flood of pairs that are used only once does not drop the pairs in use.
type generations[K comparable, V any] struct {
	young, old map[K]V
	bytes      int // of the young half
}

// nameBytes bounds a half. Each pair counts as the length of its text and nameOverhead,
// which is about the room that a pair takes in a map.
var nameBytes = 8 << 20

const nameOverhead = 64

func (g *generations[K, V]) put(k K, v V, length int) {
	if _, known := g.young[k]; !known {
		g.bytes += length + nameOverhead
	}
	if g.young == nil || g.bytes > nameBytes {
		g.young, g.old, g.bytes = map[K]V{}, g.young, length+nameOverhead
	}
	g.young[k] = v
}

// drop removes k, which was put with this length.
func (g *generations[K, V]) drop(k K, length int) {
	if _, known := g.young[k]; known {
		g.bytes -= length + nameOverhead
	}
	delete(g.young, k)
	delete(g.old, k)
}

// find looks k up. stale says that k is in the old half, and should be put again.
func (g *generations[K, V]) find(k K) (v V, ok, stale bool) {
	if v, ok = g.young[k]; ok {
		return v, true, false
	}
	v, ok = g.old[k]
	return v, ok, ok
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
	n.mu.RLock()
	text, ok, stale := n.text.find(id)
	n.mu.RUnlock()
	if ok && !stale {
		return text, nil
	}
	if !ok {
		ok, err = c.Row(func(r *sqlite.Rows) { text = T(r.Text(0)) }, n.byID, id)
	}
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
	n.mu.Lock()
	defer n.mu.Unlock()
	n.text.put(id, text, len(text))
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
	n.mu.RLock()
	id, ok, stale := n.id.find(text)
	n.mu.RUnlock()
	if stale {
		n.mu.Lock()
		if now, still := n.id.old[text]; still && now == id { // not dropped since
			n.id.put(text, id, len(text))
		}
		n.mu.Unlock()
	}
	if ok {
		return id, nil
	}
	return n.search(c, text)
}

// dictionary is the room of words and addresses: it gives them their numbers. It has what the
// present transaction has found and made, which the caches get once that is committed.
type dictionary struct {
	quiet
	w           *writer
	index       wordWriter
	used        map[int64]relay.Position // word.used of recent words, as the file has it
	words       map[string]int64         // words that were found or made; 0 for a removed one
	mechas      map[relay.Address]int64  // Mechas that were found or made; 0 for a removed one
	forgotten   []string                 // words that were removed
	foundWords  map[int64]string         // texts that were read by their numbers
	foundMechas map[int64]relay.Address  // likewise
}

func newDictionary(w *writer) *dictionary {
	return &dictionary{w: w, index: wordWriter{w: w, late: w.lateWords}, used: map[int64]relay.Position{}, words: map[string]int64{},
		mechas: map[relay.Address]int64{}, foundWords: map[int64]string{}, foundMechas: map[int64]relay.Address{}}
}

func (d *dictionary) Begin(t *tx) {
	d.w.lateWords.begin()
	clear(d.words)
	clear(d.mechas)
	clear(d.foundWords)
	clear(d.foundMechas)
	d.forgotten = d.forgotten[:0]
	t.foundWords, t.foundMechas = d.foundWords, d.foundMechas
}

func (d *dictionary) Board(t *tx) error { return d.index.board(t) }

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
	d.index.arrived(t)
}

func (d *dictionary) Forget() {
	d.w.mechas.forget()
	clear(d.used)
}

func (d *dictionary) Flush() { d.index.flush() }

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
	used, known := d.used[id]
	if !known {
		n, err := t.c.Number("SELECT used FROM word WHERE id = ?", id)
		if err != nil {
			return err
		}
		if len(d.used) >= maxWordsUsed {
			clear(d.used)
		}
		used = relay.Position(n)
	}
	if p-used > wordSlack {
		if err := t.c.Exec("UPDATE word SET used = ? WHERE id = ?", int64(p), id); err != nil {
			return err
		}
		used = p
	}
	d.used[id] = used
	return nil
}

const maxWordsUsed = 1 << 16 // words; then the writer's cache of their use is emptied
