package db

import "time"

// learningRoom is the room of what discovery learns: answers to searches, exchanges, and what
// was counted of them (learned_sql.go). Only a server counts and cleans up.
type learningRoom struct {
	quiet
	w           *writer
	counts      counts
	searches    searchCleaner
	searchWords searchCleaner
	ended       []exchange // of the present transaction, without a row yet
}

func newLearning(w *writer) *learningRoom {
	// The cleaners begin at once with what has expired before the start.
	return &learningRoom{w: w, counts: counts{w: w}, searches: searchCleaner{w: w, what: searchAnswers, next: 1}, searchWords: searchCleaner{w: w, what: searchWords, next: 1}}
}

func (l *learningRoom) start() error { return l.counts.start() }

func (l *learningRoom) Begin(*tx)         { l.ended = l.ended[:0] }
func (l *learningRoom) Board(t *tx) error { return t.keepExchanges() }
func (l *learningRoom) Forget()           { l.counts.round.forget() }

func (l *learningRoom) Due(time.Time) bool { return l.w.opts.Serve }

func (l *learningRoom) Do(now time.Time) {
	for _, b := range [...]background{&l.counts, &l.searches, &l.searchWords} {
		if b.Due(now) {
			b.Do(now)
		}
	}
}
