// Package learning is the room of learned words (PROTOCOL §5, Learning): which searches messages
// name, how these messages end, and the counts.
//
// The store calls it for searches, sends, acknowledgements, profiles and removed Mechas (package
// lessons). A store has this room as soon as a program imports this package; without a half-life it
// learns nothing new, but still removes learned words when it must. The room counts many exchanges
// together, between other work. The search index reads the counts by Learned.
package learning

import (
	"time"

	"relay/db/cache"
	"relay/db/internal/answers"
	"relay/db/internal/dictionary"
	"relay/db/internal/engine"
	"relay/db/internal/lessons"
	"relay/db/internal/names"
	"relay/db/relay"
)

func init() { lessons.Register(With(0)) }

// Learning is the room of learned words: exchanges, and their counts (learned_sql.go).
// Only a server counts and cleans up.
type Learning struct {
	engine.Quiet
	w           *engine.Store
	dictionary  *dictionary.Dictionary
	halfLife    time.Duration // 0 means that nothing is learned
	counts      counts
	searchWords *answers.Cleaner
	brought     []exchange // of the present transaction, without a row yet

	// found has the searches that messages have named lately, or may name next, so that most
	// sends need not read the file. It also bridges the time until an answer is written.
	found *cache.Cache[relay.SearchID, *found]
}

// With returns the Make of the room. halfLife is the time in which counts fade to one half, at least
// relay.MinHalfLife; 0 means that nothing is learned.
func With(halfLife time.Duration) lessons.Make {
	return func(w *engine.Store, words *dictionary.Dictionary) lessons.Lessons {
		return &Learning{w: w, dictionary: words, halfLife: halfLife, counts: counts{w: w, halfLife: halfLife},
			searchWords: answers.NewCleaner(w, searchWords),
			found:       cache.New[relay.SearchID, *found](names.CacheBytes)}
	}
}

func (l *Learning) Start() error { return l.counts.start() }

func (l *Learning) Begin(*engine.Tx)                { l.brought = l.brought[:0] }
func (l *Learning) BeforeCommit(t *engine.Tx) error { return l.keepExchanges(t) }
func (l *Learning) Forget()                         { l.counts.round.forget() }

func (l *Learning) Due(time.Time) bool { return l.w.Opts.Serve }

func (l *Learning) Do(now time.Time) {
	for _, b := range []engine.Background{&l.counts, l.searchWords} {
		if b.Due(now) {
			b.Do(now)
		}
	}
}

// Local returns the background tasks whose outcome other copies of the store do not have.
func (l *Learning) Local() []engine.Background { return []engine.Background{l.searchWords} }

// Learns reports whether the store learns.
func (l *Learning) Learns() bool { return l.halfLife != 0 }

func (l *Learning) Kinds(all *engine.Table) {
	engine.Add(all, engine.Kind[*relay.ForgetLearned, engine.None]{Decide: l.forget, Silent: true, Note: noteForgotten})
	engine.Add(all, engine.Kind[*relay.CountExchanges, bool]{Decide: l.countExchanges, Silent: true})
}

func noteForgotten(f *relay.ForgetLearned, _ engine.None, n *relay.NotedAct) bool {
	n.What, n.Mecha, n.Detail = relay.ActForgotten, f.Address, "what discovery had learned about it"
	return true
}
