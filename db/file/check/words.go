package check

import (
	"fmt"

	"relay/db/internal/sqlite"
)

func (a *audit) checkWords() error {
	err := a.ofRows(`SELECT 'word ' || id || ' has ' || length(CAST(text AS BLOB)) || ' bytes' FROM word
		WHERE id <= 0 OR length(CAST(text AS BLOB)) NOT BETWEEN 1 AND ?`, int64(maxWordBytes))
	if err != nil {
		return err
	}
	if err := a.checkWordIndex(); err != nil {
		return err
	}
	err = a.ofMessages(reasons("position", `
		WHEN NOT EXISTS (SELECT 1 FROM word WHERE id = type) THEN 'the word of its type is missing: ' || type
		WHEN NOT EXISTS (SELECT 1 FROM word WHERE id = priority) THEN 'the word of its priority is missing: ' || priority
		WHEN NOT EXISTS (SELECT 1 FROM word WHERE id = version)
			THEN 'the word of its version is missing: ' || version`, "message"))
	if err != nil {
		return err
	}
	return a.ofMessages(`SELECT message, 'the word of its acknowledgement is missing: ' || status FROM receipt
		WHERE status IS NOT NULL AND NOT EXISTS (SELECT 1 FROM word WHERE id = status)`)
}

// wordsTwice finds texts that occur in two words after a number.
const wordsTwice = `SELECT 'word ' || min(id) || ' stands ' || count(*) || ' times: ' || text FROM word WHERE id > ?
	GROUP BY text HAVING count(*) > 1`

// checkWordIndex checks the table `word_hash` (package names), and by it that no text has two
// words. Up to the watermark every word must have its row. After it rows may be missing, but none
// may be wrong.
func (a *audit) checkWordIndex() error {
	if a.ids == nil {
		return nil // without the secret, whose absence checkSettings reports, the hashes are unknown
	}
	upto, err := a.Conn.Number("SELECT value FROM setting WHERE name = 'words_indexed_upto'")
	if err != nil {
		return err
	}
	indexed := int64(0) // words up to the watermark that have their row
	err = a.each(func(r *sqlite.Rows) {
		id := r.Int(1)
		switch {
		case r.Null(2):
			a.finding.Fault(fmt.Sprintf("word %d is missing, but is in the index of words", id))
		case r.Int(0) != a.ids.WordHash(r.Text(2)):
			a.finding.Fault(fmt.Sprintf("word %d is in the wrong place in the index of words", id))
		case id <= upto:
			indexed++
		}
	}, "SELECT h.hash, h.word, w.text FROM word_hash h LEFT JOIN word w ON w.id = h.word")
	if err != nil {
		return err
	}
	words, err := a.Conn.Number("SELECT count(*) FROM word WHERE id <= ?", upto)
	if err != nil {
		return err
	}
	if indexed < words {
		a.finding.Fault(fmt.Sprintf("%d words are missing in the index of words: their texts could get second words",
			words-indexed))
	}
	err = a.ofRows(`SELECT 'word ' || w.id || ' stands twice, also as word ' || v.id || ': ' || w.text FROM word_hash h
		CROSS JOIN word_hash g ON g.hash = h.hash AND g.word > h.word CROSS JOIN word w ON w.id = h.word
			CROSS JOIN word v ON v.id = g.word WHERE v.text = w.text`)
	if err != nil {
		return err
	}
	if err := a.ofRows(wordsTwice, upto); err != nil {
		return err
	}
	return a.checkLateWords(upto)
}

// checkLateWords looks for words after the watermark whose text an earlier word has, too.
func (a *audit) checkLateWords(upto int64) (err error) {
	fault := a.each(func(r *sqlite.Rows) {
		id, text := r.Int(0), r.Text(1)
		twice, fault := a.Conn.Row(nil, `SELECT 1 FROM word_hash h CROSS JOIN word w ON w.id = h.word
			WHERE h.hash = ?1 AND h.word < ?2 AND h.word <= ?3 AND w.text = ?4`, a.ids.WordHash(text), id, upto, text)
		if twice {
			a.finding.Fault(fmt.Sprintf("word %d stands twice: %s", id, text))
		}
		if fault != nil {
			err = fault
		}
	}, "SELECT id, text FROM word WHERE id > ?", upto)
	if fault != nil {
		return fault
	}
	return err
}
