package learning

import (
	"encoding/binary"
	"slices"
)

// A wordPage is a row of the table `learned`: the words of a Mecha from first on, up to the first
// word of the next page. A separate row for each word would cost more than everything else: the
// words of an exchange, and of many exchanges, are often in one page.
type wordPage struct {
	first   string // the first page of a Mecha has ""
	next    string // the first word of the next page, or ""
	words   []pagedWord
	before  int // how many words of the page are in the file
	stored  bool
	changed bool
}

// A pagedWord is a word of a Mecha, with its shares.
type pagedWord struct {
	word    string
	encoded []byte // the form of the shares; nil once they have changed
	shares  shares // nil until they are read
}

// pageRoom is how many bytes a page may have, so that its row fits a page of SQLite. Where each Mecha
// learns many words of many senders, a count costs 18 µs an exchange with 3,900, 22 with 1,800 and 32
// with 900 (BenchmarkLearning in http, 5,000 exchanges of 200 Mechas together). With 8,000 it is 16, but
// a change writes two or three pages of SQLite.
const pageRoom = 3900

// covers reports whether a word belongs to the page.
func (p *wordPage) covers(word string) bool {
	return p.first <= word && (p.next == "" || word < p.next)
}

// find returns the place of a word, and whether it is there.
func (p *wordPage) find(word string) (int, bool) {
	from, to := 0, len(p.words) // by hand, since a count does this most of its time
	for from < to {
		if at := (from + to) / 2; p.words[at].word < word {
			from = at + 1
		} else {
			to = at
		}
	}
	return from, from < len(p.words) && p.words[from].word == word
}

func (w *pagedWord) read() (_ shares, err error) {
	if w.shares == nil && w.encoded != nil {
		w.shares, err = decodeShares(w.encoded)
	}
	return w.shares, err
}

// set replaces the shares of a word, at the place from find. Without shares it removes the word.
func (p *wordPage) set(i int, there bool, word string, all shares) {
	switch {
	case len(all) == 0 && there:
		p.words = slices.Delete(p.words, i, i+1)
	case len(all) == 0:
		return
	case there:
		p.words[i].shares, p.words[i].encoded = all, nil
	default:
		p.words = slices.Insert(p.words, i, pagedWord{word: word, shares: all})
	}
	p.changed = true
}

// encode returns the words as the file has them: for each its length and text, then the length and
// the form of its shares.
func (p *wordPage) encode() []byte {
	b := make([]byte, 0, pageRoom)
	for i := range p.words {
		w := &p.words[i]
		if w.encoded == nil {
			w.encoded = w.shares.encode()
		}
		b = append(binary.AppendUvarint(b, uint64(len(w.word))), w.word...)
		b = append(binary.AppendUvarint(b, uint64(len(w.encoded))), w.encoded...)
	}
	return b
}

// size returns roughly the bytes of a word in encode.
func (w *pagedWord) size() int {
	if w.encoded != nil {
		return 3 + len(w.word) + len(w.encoded)
	}
	return 3 + len(w.word) + bytesPerShare*len(w.shares)
}

// split returns the page, or parts of it that fit. Parts are filled evenly, so that none must be
// split again soon. They are for writing alone, and do not know the next page.
func (p *wordPage) split() []*wordPage {
	size := 0
	for i := range p.words {
		size += p.words[i].size()
	}
	if size <= pageRoom {
		return []*wordPage{p}
	}
	most := size/(size/pageRoom+1) + 1
	words := p.words
	parts, filled := []*wordPage{p}, 0
	p.words = nil
	for i := range words {
		last := parts[len(parts)-1]
		if filled += words[i].size(); filled > most && len(last.words) > 0 {
			last, filled = &wordPage{first: words[i].word, changed: true}, words[i].size()
			parts = append(parts, last)
		}
		last.words = append(last.words, words[i])
	}
	return parts
}

// decodeWords reads the words of a page. It keeps no reference to b.
func decodeWords(b []byte) (all []pagedWord, err error) {
	b = slices.Clone(b)
	text := string(b) // of which the words are parts
	part := func() (from, to int) {
		n, size := binary.Uvarint(b)
		if size <= 0 || n == 0 || n > uint64(len(b)-size) {
			b, err = nil, errShares()
			return 0, 0
		}
		from = len(text) - len(b) + size
		b = b[size+int(n):]
		return from, from + int(n)
	}
	whole := b
	all = make([]pagedWord, 0, len(b)/(2*bytesPerShare)+8)
	for len(b) > 0 {
		from, to := part()
		w := pagedWord{word: text[from:to]}
		from, to = part()
		w.encoded = whole[from:to:to]
		if len(all) > 0 && all[len(all)-1].word >= w.word {
			err = errShares()
		}
		if err != nil {
			return nil, err
		}
		all = append(all, w)
	}
	return all, nil
}
