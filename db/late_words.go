package db

import (
	"maps"
	"slices"
	"sync"
)

// The table `word_hash` is the index that finds a word by its text. Each label that a client
// makes up is a new word, and its hash stands anywhere in that table. If every word were
// indexed with its own transaction, it would change a page of its own, and that was a quarter
// of what labelled messages wrote. So a server writes this index late, as it does with the
// mailboxes (mailbox.go): it collects a segment of words in memory, sorts it, and inserts part
// of it with each transaction.
//
// The words themselves are in the file at once, so nothing can be lost here. The setting
// `words_indexed_upto` is a watermark: words with greater numbers may be missing from the
// index. A server remembers these; other processes scan `word` from there on.

const rowsPerNewWord = 4 // rows inserted, at most, for every new word; a segment is then indexed when a quarter of the next one has come

// wordSegment is how many words a segment has. A word takes about 100 bytes of memory, and a
// server has up to two segments: 3 MB. It is a variable, so that tests can have many.
var wordSegment = 16384

// A hashedWord is a row of the index.
type hashedWord struct{ hash, id int64 }

// wordsByHash are numbers of words, by the hashes of their texts. Two texts may have one hash.
type wordsByHash map[int64][]int64

// sorted gives the rows in the order of the index.
func (w wordsByHash) sorted() (all []hashedWord) {
	for _, hash := range slices.Sorted(maps.Keys(w)) {
		for _, id := range w[hash] {
			all = append(all, hashedWord{hash, id})
		}
	}
	return all
}

// A segmentOfWords has the words whose numbers are greater than after, up to those of the next
// segment, without those that other processes added.
type segmentOfWords struct {
	after, last int64 // last is the greatest number
	count       int
	words       wordsByHash
}

func newSegmentOfWords(after int64) *segmentOfWords {
	return &segmentOfWords{after: after, last: after, words: wordsByHash{}}
}

func (s *segmentOfWords) add(w hashedWord) {
	s.words[w.hash] = append(s.words[w.hash], w.id)
	s.last = w.id // numbers grow
	s.count++
}

// lateWords remembers the words that the index lacks. Only a server
// fills it; in other processes it stays the zero value. It is safe for concurrent use; only the
// writer changes it.
type lateWords struct {
	mu sync.RWMutex
	// The rows of indexing are being inserted; nil if none are. collecting gets the new words. A
	// read that began before a segment was indexed does without this memory.
	indexing, collecting *segmentOfWords
	// open has the words of the present transaction. Reads may see them before the writer knows
	// that they are committed, or they may never be.
	open []hashedWord
}

// begin forgets the words of a transaction that was rolled back.
func (l *lateWords) begin() {
	if len(l.open) > 0 { // without the mutex, since only the writer changes it
		l.mu.Lock()
		defer l.mu.Unlock()
		l.open = l.open[:0]
	}
}

// expect notes a word of the present transaction.
func (l *lateWords) expect(w hashedWord) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = append(l.open, w)
}

// collect adds the expected words, which have been committed, to the collecting segment.
func (l *lateWords) collect() {
	if len(l.open) == 0 { // without the mutex, as in begin
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.open {
		l.collecting.add(w)
	}
	l.open = l.open[:0]
}

// seal ends the collecting segment and returns it, to be indexed.
func (l *lateWords) seal() *segmentOfWords {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.indexing, l.collecting = l.collecting, newSegmentOfWords(l.collecting.last)
	return l.indexing
}

// finish notes that the file has all rows of the indexing segment.
func (l *lateWords) finish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.indexing = nil
}

// find gives the numbers of words whose texts may have a hash, and which the index may lack at
// the watermark after. Some may be of no word, because it was removed, or is not committed.
// known is false if the watermark is too old for this memory, or if this process does not serve.
func (l *lateWords) find(hash, after int64) (ids []int64, known bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, s := range []*segmentOfWords{l.indexing, l.collecting} {
		if s != nil {
			known = known || after >= s.after // true if the oldest segment begins at the watermark or before
			ids = append(ids, s.words[hash]...)
		}
	}
	for _, w := range l.open {
		if w.hash == hash {
			ids = append(ids, w.id)
		}
	}
	return ids, known
}
