// Package learning is the room of what discovery learns (PROTOCOL §5, Learning): the answers to
// searches, which of them messages name, how these end, and what was counted of that.
//
// The store tells it of sends, ends, profiles and removed Mechas (Lessons in packages sending,
// progress, directory and retention). It counts many exchanges together, beside other work. The
// search index reads the counts by Learned.
package learning

import (
	"time"

	"relay/db/cache"
	"relay/db/internal/dictionary"
	"relay/db/internal/engine"
	"relay/db/internal/names"
	"relay/db/relay"
)

// Learning is the room of what discovery learns: answers to searches, exchanges, and what
// was counted of them (learned_sql.go). Only a server counts and cleans up.
type Learning struct {
	engine.Quiet
	w           *engine.Store
	dictionary  *dictionary.Dictionary
	halfLife    time.Duration // 0: nothing is learned
	counts      counts
	searches    searchCleaner
	searchWords searchCleaner
	work        []engine.Background // counts, and the two that clean up
	brought     []exchange          // of the present transaction, without a row yet

	// found has the searches that messages have named lately, or may name next, so that most
	// sends need not read the file. It bridges the time until an answer is written, too.
	found *cache.Cache[relay.SearchID, *found]
}

// New makes the room. halfLife is the time in which what was learned fades to one half; 0: nothing is learned.
func New(w *engine.Store, words *dictionary.Dictionary, halfLife time.Duration) *Learning {
	// The cleaners begin at once with what has expired before the start.
	l := &Learning{w: w, dictionary: words, found: cache.New[relay.SearchID, *found](names.CacheBytes), halfLife: halfLife,
		counts: counts{w: w, halfLife: halfLife}}
	l.searches = searchCleaner{room: l, w: w, what: searchAnswers, next: 1}
	l.searchWords = searchCleaner{room: l, w: w, what: searchWords, next: 1}
	l.work = []engine.Background{&l.counts, &l.searches, &l.searchWords}
	return l
}

func (l *Learning) Start() error { return l.counts.start() }

func (l *Learning) Begin(*engine.Tx)         { l.brought = l.brought[:0] }
func (l *Learning) Board(t *engine.Tx) error { return l.keepExchanges(t) }
func (l *Learning) Forget()                  { l.counts.round.forget() }

func (l *Learning) Due(time.Time) bool { return l.w.Opts.Serve }

func (l *Learning) Do(now time.Time) {
	for _, b := range l.work {
		if b.Due(now) {
			b.Do(now)
		}
	}
}

// Local returns the work whose outcome other copies of the store do not have.
func (l *Learning) Local() []engine.Background { return l.work[1:] }

// Learns reports whether anything is learned.
func (l *Learning) Learns() bool { return l.halfLife != 0 }

// Kinds adds the writes of the room to the table.
func (l *Learning) Kinds(all *engine.Table) {
	engine.Add(all, engine.Kind[*relay.ForgetLearned, engine.None]{Decide: l.forget, Silent: true, Note: noteForgotten})
	engine.Add(all, engine.Kind[*relay.CountExchanges, bool]{Decide: l.countExchanges, Silent: true})
}

func noteForgotten(f *relay.ForgetLearned, _ engine.None, n *relay.NotedAct) bool {
	n.What, n.Mecha, n.Detail = relay.ActForgotten, f.Address, "what discovery had learned about it"
	return true
}
