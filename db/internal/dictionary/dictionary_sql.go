// Package dictionary holds the interned strings (words) and the addresses: it assigns their
// numbers in the tables word and mecha, and keeps the index of words up to date.
//
// The writer calls Mecha and Intern. The numbers that a transaction has found or made reach the
// caches in the package names only once it is committed. A word that the present transaction has
// removed is still in them: see IsRemoved.
package dictionary

import (
	"time"

	"relay/db/cache"
	"relay/db/internal/engine"
	"relay/db/internal/names"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// Dictionary is the room of words and addresses. It holds the numbers that the present
// transaction has found and made, which the caches get after the commit.
type Dictionary struct {
	engine.Quiet
	w           *engine.Store
	used        *cache.Cache[int64, relay.Position] // word.used of recent words, as the file has it
	words       map[string]int64                    // words that were found or made; 0 for a removed one
	Mechas      map[relay.Address]int64             // Mechas that were found or made; 0 for a removed one
	forgotten   []string                            // words that were removed
	foundWords  map[int64]string                    // texts that were read by their numbers
	foundMechas map[int64]relay.Address             // likewise
}

// NotFound is the error for an address that no Mecha has.
func NotFound(a relay.Address) error {
	return relay.Errorf(relay.MechaNotFound, "no Mecha %s is registered here", a)
}

func New(w *engine.Store) *Dictionary {
	return &Dictionary{w: w, used: cache.New[int64, relay.Position](maxWordsUsed), words: map[string]int64{},
		Mechas: map[relay.Address]int64{}, foundWords: map[int64]string{}, foundMechas: map[int64]relay.Address{}}
}

func (d *Dictionary) Begin(t *engine.Tx) {
	d.w.TailStrings.Begin()
	clear(d.words)
	clear(d.Mechas)
	clear(d.foundWords)
	clear(d.foundMechas)
	d.forgotten = d.forgotten[:0]
	t.FoundWords, t.FoundMechas = d.foundWords, d.foundMechas
}

func (d *Dictionary) BeforeCommit(t *engine.Tx) error { return t.TailStrings.BeforeCommit(t.C, nil) }

func (d *Dictionary) AfterCommit(t *engine.Tx) {
	w := d.w
	w.Words.Drop(d.forgotten)
	for text, id := range d.words {
		if id != 0 {
			w.Words.Put(id, text)
		}
	}
	for address, id := range d.Mechas {
		if id != 0 {
			w.Mechas.Put(id, address)
		}
	}
	w.Words.Publish(d.foundWords)
	w.Mechas.Publish(d.foundMechas)
	if t.Changed&engine.EntriesChanged != 0 { // a Mecha may have been removed
		w.Mechas.Forget()
	}
	t.TailStrings.AfterCommit(0, nil, nil)
}

func (d *Dictionary) Forget() {
	d.w.Mechas.Forget()
	d.used.Forget()
}

func (d *Dictionary) Flush() { d.w.TailStrings.Flush(d.w.MayWrite, d.w.CommitRows) }

// Mecha returns the number of an address, or 0 if it is not registered.
func (d *Dictionary) Mecha(t *engine.Tx, a relay.Address) (relay.MechaNumber, error) {
	if id, ok := d.Mechas[a]; ok {
		return relay.MechaNumber(id), nil
	}
	id, err := t.Caches.Mechas.Find(t.C, a)
	if err == nil && id != 0 {
		d.Mechas[a] = id
	}
	return relay.MechaNumber(id), err
}

// Intern returns the number of a word for a row of the present write, and adds the word
// if it is new.
func (d *Dictionary) Intern(t *engine.Tx, text string) (int64, error) {
	id, ok := d.words[text]
	if !ok {
		var err error
		if id, err = t.Caches.Words.Find(t.C, text); err != nil {
			return 0, err
		}
	}
	if id != 0 { // 0 may also mean that this transaction has removed the word
		d.words[text] = id
		return id, d.useWord(t, id)
	}
	return d.AddWord(t, text)
}

// IsRemoved reports whether this transaction has removed a word, which the caches still
// have.
func (d *Dictionary) IsRemoved(t *engine.Tx, text string) bool {
	id, known := d.words[text]
	return known && id == 0
}

// WordSlack is how far word.used may be behind the last use of a word. So the words of
// all messages are written once an hour, not with every message.
const WordSlack = relay.Position(time.Hour/time.Millisecond) << relay.PositionBits

// useWord notes that the present write uses a word.
func (d *Dictionary) useWord(t *engine.Tx, id int64) error {
	p := t.Next(t.Now)
	used, known := d.used.Find(id)
	if !known {
		n, err := t.C.Number("SELECT used FROM word WHERE id = ?", id)
		if err != nil {
			return err
		}
		used = relay.Position(n)
	}
	if p-used > WordSlack {
		if err := t.C.Exec("UPDATE word SET used = ? WHERE id = ?", int64(p), id); err != nil {
			return err
		}
		used, known = p, false
	}
	if !known {
		d.used.Put(id, used, 1)
	}
	return nil
}

const maxWordsUsed = 1 << 16 // words whose use the writer caches

// AddWord adds a word that is new. A server indexes it later; another process indexes it at
// once, because the server's memory would not have it.
func (d *Dictionary) AddWord(t *engine.Tx, text string) (id int64, err error) {
	p := t.Next(t.Now)
	if _, err := t.C.Row(func(r *sqlite.Rows) { id = r.Int(0) },
		"INSERT INTO word (text, used) VALUES (?, ?) RETURNING id", text, int64(p)); err != nil {
		return 0, err
	}
	d.words[text] = id
	d.used.Put(id, p, 1)
	if w := (names.HashedWord{Hash: t.IDs.WordHash(text), ID: id}); t.Store.Opts.Serve {
		t.TailStrings.Expect(w)
	} else {
		err = t.TailStrings.InsertOne(t.C, w)
	}
	return id, err
}

// RemoveWord removes a word. The server's memory of words may keep its number for a while. That
// is harmless, because FindWord reads the row of each number that it finds there.
func (room *Dictionary) RemoveWord(t *engine.Tx, id int64, text string) error {
	if err := t.C.Exec("DELETE FROM word WHERE id = ?", id); err != nil {
		return err
	}
	d := room
	d.used.Drop(id)
	d.words[text] = 0
	d.forgotten = append(d.forgotten, text)
	return t.C.Exec("DELETE FROM word_hash WHERE hash = ? AND word = ?", t.IDs.WordHash(text), id)
}

// StartIndex reads the words after the watermark, which a killed server has not indexed
// completely. If they are far more than a server leaves, it indexes them at once, a part at a
// time.
func (d *Dictionary) StartIndex() error {
	w, limit := d.w, 4*names.WordSegment
	if w.StartedFull { // nothing can be written
		limit = -1 // any number
	}
	for {
		after, err := w.C.Number("SELECT value FROM setting WHERE name = 'words_indexed_upto'")
		if err != nil {
			return err
		}
		n := 0
		err = w.TailStrings.Start(after, func(add func(names.HashedWord)) error {
			r := w.C.Query("SELECT id, text FROM word WHERE id > ? ORDER BY id LIMIT ?", after, int64(limit))
			for ; r.Next(); n++ {
				add(names.HashedWord{Hash: w.IDs.WordHash(r.Text(1)), ID: r.Int(0)})
			}
			return r.Close()
		})
		if err != nil || n != limit {
			return err
		}
		if err := w.TailStrings.InsertNow(w.C); err != nil {
			return err
		}
	}
}
