package db

import (
	"strconv"

	"relay/db/internal/sqlite"
)

const (
	wordInIndex = `SELECT coalesce((SELECT value FROM setting WHERE name = 'words_indexed_upto'), 0),
		(SELECT w.id FROM word_hash h CROSS JOIN word w ON w.id = h.word WHERE h.hash = ?1 AND w.text = ?2)`
	wordAfter = "SELECT id FROM word WHERE id > ? AND text = ?"
)

// findWord gives the number of a word in the state of the file that c sees; 0 if it has none.
func (l *lookups) findWord(c *sqlite.Conn, text string) (id int64, err error) {
	var after int64
	hash := l.ids.WordHash(text)
	_, err = c.Row(func(r *sqlite.Rows) { after, id = r.Int(0), r.Int(1) }, wordInIndex, hash, text)
	if id != 0 || err != nil {
		return id, err
	}
	late, known := l.lateWords.find(hash, after)
	for _, id := range late {
		if is, err := c.Row(nil, "SELECT 1 FROM word WHERE id = ? AND text = ?", id, text); is || err != nil {
			return id, err
		}
	}
	if known {
		return 0, nil
	}
	return c.Number(wordAfter, after, text)
}

// addWord adds a word that is new. A server indexes it late, another process at once, because
// the server's memory would not have it.
func (d *dictionary) addWord(t *tx, text string) (id int64, err error) {
	p := t.next(t.now)
	if _, err := t.c.Row(func(r *sqlite.Rows) { id = r.Int(0) }, "INSERT INTO word (text, used) VALUES (?, ?) RETURNING id", text, int64(p)); err != nil {
		return 0, err
	}
	d.words[text] = id
	d.used.Put(id, p, 1)
	hash := t.ids.WordHash(text)
	if t.w.opts.Serve {
		t.lateWords.expect(hashedWord{hash, id})
		return id, nil
	}
	return id, t.c.Exec("INSERT INTO word_hash (hash, word) VALUES (?, ?)", hash, id)
}

// removeWord removes a word. The server's memory of words may keep its number for a while. That
// does no harm, because findWord looks at the row of each number that it finds there.
func (room *dictionary) removeWord(t *tx, id int64, text string) error {
	if err := t.c.Exec("DELETE FROM word WHERE id = ?", id); err != nil {
		return err
	}
	d := room
	d.used.Drop(id)
	d.words[text] = 0
	d.forgotten = append(d.forgotten, text)
	return t.c.Exec("DELETE FROM word_hash WHERE hash = ? AND word = ?", t.ids.WordHash(text), id)
}

// insertHashes inserts rows of the index, of those words that are still there.
func insertHashes(c *sqlite.Conn, rows []hashedWord) error {
	b := make([]byte, 0, 2+32*len(rows))
	b = append(b, '[')
	for i, r := range rows {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(append(b, '['), r.hash, 10)
		b = append(strconv.AppendInt(append(b, ','), r.id, 10), ']')
	}
	return c.Exec(`INSERT OR IGNORE INTO word_hash (hash, word) SELECT j.value ->> 0, w.id
		FROM json_each(?) j CROSS JOIN word w ON w.id = j.value ->> 1`, string(append(b, ']')))
}

func setWordsIndexed(c *sqlite.Conn, upto int64) error {
	return c.Exec("UPDATE setting SET value = ? WHERE name = 'words_indexed_upto'", upto)
}

// wordWriter inserts the rows of a segment of words, some with each
// transaction that brings new words. They are neighbours in the index.
type wordWriter struct {
	w     *writer
	late  *lateWords
	rest  []hashedWord // the rows of the segment that are still to be inserted
	upto  int64        // the end of the segment
	due   int          // how many rows may be inserted now
	tried int          // how many rows the present transaction inserts
}

// start reads the words after the watermark, which a killed server has not indexed, or only some
// of them. They are the first segment. If they are far more than a server leaves, it indexes them at
// once, a part at a time.
func (s *wordWriter) start() error {
	for {
		after, err := s.w.c.Number("SELECT value FROM setting WHERE name = 'words_indexed_upto'")
		if err != nil {
			return err
		}
		all := newSegmentOfWords(after)
		most := int64(4 * wordSegment)
		if s.w.cramped { // nothing can be written
			most = -1 // any number
		}
		r := s.w.c.Query("SELECT id, text FROM word WHERE id > ? ORDER BY id LIMIT ?", after, most)
		for r.Next() {
			all.add(hashedWord{s.w.ids.WordHash(r.Text(1)), r.Int(0)})
		}
		if err := r.Close(); err != nil {
			return err
		}
		if int64(all.count) != most {
			if s.late.collecting = all; all.count > 0 {
				s.next()
			}
			return nil
		}
		if err := s.indexNow(all); err != nil {
			return err
		}
	}
}

// indexNow indexes words in a transaction of its own, at the start.
func (s *wordWriter) indexNow(all *segmentOfWords) error {
	c := s.w.c
	if err := c.BeginWrite(); err != nil {
		return err
	}
	err := insertHashes(c, all.words.sorted())
	if err == nil {
		err = setWordsIndexed(c, all.last)
	}
	if err != nil {
		c.Rollback()
		return err
	}
	return c.Commit()
}

// next begins to insert the segment that has been collected.
func (s *wordWriter) next() {
	of := s.late.seal()
	s.rest, s.upto, s.due = of.words.sorted(), of.last, 0
}

// board inserts rows of the segment, if enough are due.
func (s *wordWriter) board(t *tx) error {
	s.tried = 0
	if len(s.rest) == 0 {
		return nil
	}
	s.due += rowsPerNewWord * len(s.late.open)
	n := min(s.due, len(s.rest))
	if n < leastRows && n < len(s.rest) {
		return nil
	}
	s.tried = n
	if err := insertHashes(t.c, s.rest[:n]); err != nil || n < len(s.rest) {
		return err
	}
	return setWordsIndexed(t.c, s.upto)
}

// arrived notes the words and the rows that were committed. When the segment is indexed, and the
// next one is long enough, it begins to insert that.
func (s *wordWriter) arrived(*tx) {
	if s.late.collecting == nil {
		return // this process does not serve, so it has indexed its words at once
	}
	s.late.collect()
	if s.tried > 0 {
		s.due -= s.tried
		if s.rest = s.rest[s.tried:]; len(s.rest) == 0 {
			s.late.finish()
		}
	}
	if len(s.rest) == 0 && s.late.collecting.count >= wordSegment {
		s.next()
	}
}

// flush indexes all words when the store closes. If that fails, the next start indexes them.
func (s *wordWriter) flush() {
	for s.late.collecting != nil && s.w.failed() == nil && !s.w.disk.low.Load() {
		if len(s.rest) == 0 {
			if s.late.collecting.count == 0 {
				return
			}
			s.next()
		}
		before := len(s.rest)
		s.due = rowsWhenClosing
		s.w.commit(nil)
		if len(s.rest) == before {
			return
		}
	}
}
