package names

import (
	"math"
	"strconv"

	"relay/db/internal/late"
	"relay/db/internal/sqlite"
)

// The table `word_hash` is the index that finds a word by its text. Each label that a client
// makes up is a new word, and its hash may be anywhere in that table. If every transaction
// indexed its words, each would change a page of its own: that was a quarter of the writes of
// labelled messages. So a server writes this index behind, like the mailboxes (package
// mailbox), up to the watermark `words_indexed_upto`.

// rows inserted, at most, for every new word; a segment is then indexed when a quarter of the next one has come
const rowsPerNewWord = 4

// WordSegment is how many words a segment has. A word takes about 100 bytes of memory, and a
// server has up to three segments: 5 MB. It is a variable, so that tests can have many.
var WordSegment = 16384

// A HashedWord is a word by the hash of its text. Two texts may have one hash.
type HashedWord struct{ Hash, ID int64 }

// Position implements late.Item.
func (w HashedWord) Position() int64 { return w.ID }

// Key implements late.Item.
func (w HashedWord) Key(int) (of int64, is bool) { return w.Hash, true }

func newTailStrings() *late.Index[HashedWord, int64] {
	return late.New[HashedWord](late.Options[int64]{
		Tables:    []func(*sqlite.Conn, []late.Row[int64]) error{insertHashes},
		Watermark: setWordsIndexed, Segment: WordSegment, PerItem: rowsPerNewWord, MinRows: MinRows,
	})
}

const (
	wordInIndex = `SELECT coalesce((SELECT value FROM setting WHERE name = 'words_indexed_upto'), 0),
		(SELECT w.id FROM word_hash h CROSS JOIN word w ON w.id = h.word WHERE h.hash = ?1 AND w.text = ?2)`
	wordAfter = "SELECT id FROM word WHERE id > ? AND text = ?"
)

// FindWord returns the number of a word in the snapshot that c sees, or 0.
func (l *Caches) FindWord(c *sqlite.Conn, text string) (id int64, err error) {
	var after int64
	hash := l.IDs.WordHash(text)
	_, err = c.Row(func(r *sqlite.Rows) { after, id = r.Int(0), r.Int(1) }, wordInIndex, hash, text)
	if id != 0 || err != nil {
		return id, err
	}
	// Some of these words may be removed, or not committed.
	some, _, known := l.TailStrings.Find(after, 0, math.MaxInt64, late.Key{Of: hash})
	for _, id := range some {
		if is, err := c.Row(nil, "SELECT 1 FROM word WHERE id = ? AND text = ?", id, text); is || err != nil {
			return id, err
		}
	}
	if known {
		return 0, nil
	}
	return c.Number(wordAfter, after, text)
}

// insertHashes inserts rows of the index, for the words that still exist.
func insertHashes(c *sqlite.Conn, rows []late.Row[int64]) error {
	b := make([]byte, 0, 2+32*len(rows))
	b = append(b, '[')
	for i, r := range rows {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(append(b, '['), r.Of, 10)
		b = append(strconv.AppendInt(append(b, ','), r.At, 10), ']')
	}
	return c.Exec(`INSERT OR IGNORE INTO word_hash (hash, word) SELECT j.value ->> 0, w.id
		FROM json_each(?) j CROSS JOIN word w ON w.id = j.value ->> 1`, string(append(b, ']')))
}

func setWordsIndexed(c *sqlite.Conn, upto int64) error {
	return c.Exec("UPDATE setting SET value = ? WHERE name = 'words_indexed_upto'", upto)
}
