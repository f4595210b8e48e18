// Package answers is the room of the answers to searches, which a Mecha may read again for an hour
// (PROTOCOL §5, Search result). They are local to a process, since each process has its own index.
//
// Only a server cleans up. A Cleaner removes a text of expired searches. Lessons has its own Cleaner,
// for the words of the query.
package answers

import (
	"context"
	"time"

	"relay/db/internal/engine"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// The store keeps the newest answers of each Mecha, up to these limits. If their texts
// have too many bytes, the oldest texts are removed first.
const (
	searchesPerMecha    = 100
	searchBytesPerMecha = 16 << 20
)

// Lessons is called for searches, and may store data in their rows.
type Lessons interface {
	// Asked is called when a search has been answered, before its row is written. Any goroutine
	// may call it.
	Asked(s *relay.SaveSearch)
	// Kept returns what the row stores for the messages that name the search, or nil.
	Kept(s *relay.SaveSearch) (words, listed any)
}

// Answers is the room of the answers to searches.
type Answers struct {
	engine.Quiet
	w       *engine.Store
	lessons Lessons
	cleaner *Cleaner
}

// New makes the room.
func New(w *engine.Store, l Lessons) *Answers {
	return &Answers{w: w, lessons: l, cleaner: NewCleaner(w, answerText)}
}

// Due reports whether there may be work: a server cleans up.
func (a *Answers) Due(now time.Time) bool { return a.w.Opts.Serve && a.cleaner.Due(now) }

// Do cleans up.
func (a *Answers) Do(now time.Time) { a.cleaner.Do(now) }

// MechaGone removes the answers of a Mecha that nothing refers to: nobody can read them any more.
func (a *Answers) MechaGone(t *engine.Tx, id relay.MechaNumber) error {
	return t.C.Exec("DELETE FROM search WHERE mecha = ?", int64(id))
}

// SaveSearch queues the storing of an answer, without waiting for its commit. done is
// called from the writer's goroutine and must not block; if the store refuses the answer,
// SaveSearch calls it at once. Errors: DiskFull, and those of every write. Any goroutine
// may call it.
func (a *Answers) SaveSearch(s *relay.SaveSearch, done func(error)) {
	a.lessons.Asked(s)
	if a.w.Disk.Low.Load() { // the remaining room is for acknowledgements
		done(engine.ErrDiskFull())
		return
	}
	a.w.Submit(&savedSearch{s, a}, s.Mecha, done)
}

var _ engine.Spender = (*savedSearch)(nil)

// savedSearch is the local write of SaveSearch.
type savedSearch struct {
	*relay.SaveSearch
	room *Answers
}

func (s *savedSearch) Size() int               { return 256 + len(s.Answer) }
func (s *savedSearch) Spends() relay.NonceHash { return s.Nonce }

func (s *savedSearch) Apply(t *engine.Tx) error {
	expires := s.At.Add(relay.SearchLife).UnixMilli()
	words, listed := s.room.lessons.Kept(s.SaveSearch)
	err := t.C.Exec("INSERT INTO search (position, id, mecha, expires_at, answer, nonce, words, listed) "+
		"VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
		int64(t.LocalPosition(s.At)), string(s.ID), int64(s.Mecha), expires, string(s.Answer), sqlite.OrNull(int64(s.Nonce)),
		words, listed)
	if err != nil {
		return err
	}
	s.room.cleaner.Expect(expires)
	return s.room.trimSearches(t, s.Mecha)
}

// trimSearches keeps a Mecha's answers within the limits. It deletes the oldest rows
// beyond searchesPerMecha. Beyond searchBytesPerMecha it only removes texts, and keeps
// the rows for their nonces.
func (a *Answers) trimSearches(t *engine.Tx, id relay.MechaNumber) error {
	var beyond relay.Position // the newest row to delete; all older ones, too
	large := false
	_, err := t.C.Row(func(r *sqlite.Rows) {
		if r.Int(0) > searchesPerMecha {
			beyond = relay.Position(r.Int(2))
		}
		large = r.Int(1) > searchBytesPerMecha
	}, `SELECT count(*), sum(bytes), min(position) FROM (SELECT position, octet_length(answer) AS bytes
		FROM search INDEXED BY search_mecha WHERE mecha = ? ORDER BY position DESC LIMIT ?)`,
		int64(id), int64(searchesPerMecha+1))
	if err == nil && large {
		err = a.trimTexts(t, id, beyond)
	}
	if err != nil || beyond == 0 {
		return err
	}
	return t.Erasing(func() error {
		return t.C.Exec("DELETE FROM search WHERE position IN (SELECT position FROM search INDEXED BY search_mecha "+
			"WHERE mecha = ? AND position <= ?)",
			int64(id), int64(beyond))
	})
}

// trimTexts removes the texts of the oldest answers of a Mecha after a position, beyond searchBytesPerMecha.
func (a *Answers) trimTexts(t *engine.Tx, id relay.MechaNumber, after relay.Position) error {
	var emptied []relay.Position
	bytes, newest := int64(0), true
	r := t.C.Query("SELECT position, octet_length(answer) FROM search INDEXED BY search_mecha "+
		"WHERE mecha = ? AND position > ? ORDER BY position DESC", int64(id), int64(after))
	for r.Next() {
		if bytes += r.Int(1); bytes > searchBytesPerMecha && !newest && r.Int(1) > 0 {
			emptied = append(emptied, relay.Position(r.Int(0)))
		}
		newest = false
	}
	if err := r.Close(); err != nil {
		return err
	}
	return emptySearches(t, emptied, answerText)
}

// A Text is a text in the row of a search that is removed after some time.
type Text struct {
	Size, Empty string        // SQL: the bytes of the text in a row, and what removes it
	Stays       time.Duration // after the search has expired
}

var answerText = Text{Size: "octet_length(answer)", Empty: "UPDATE search SET answer = '' WHERE position = ?"}

// emptySearches removes texts of searches, and overwrites them in the file.
func emptySearches(t *engine.Tx, all []relay.Position, what Text) error {
	if len(all) == 0 {
		return nil
	}
	return t.Erasing(func() error {
		for _, p := range all {
			if err := t.C.Exec(what.Empty, int64(p)); err != nil {
				return err
			}
		}
		return nil
	})
}

// A Cleaner removes texts of searches: answers when they expire, because they show profiles as they
// were and take space; or the words of the query, once no message can name the search any more. The
// rows stay until newer ones replace them, as evidence that there was an answer.
//
// Rows are in the order of their times and live equally long. So a scan that begins
// where the last one ended finds the rows that are due first.
type Cleaner struct {
	w    *engine.Store
	what Text
	next int64          // when work will be due, in Unix ms; 0 if none will
	upto relay.Position // rows up to this position are done
}

// NewCleaner makes a Cleaner. It begins with the searches that have already expired.
func NewCleaner(w *engine.Store, what Text) *Cleaner { return &Cleaner{w: w, what: what, next: 1} }

const (
	emptyRows  = 500         // rows that are scanned in one transaction, because other jobs wait for it
	emptyBytes = 4 << 20     // bytes of text that are removed in one transaction
	emptyEvery = time.Minute // answers that expire in the same minute are done together
	emptyRetry = time.Minute // the wait after a fault
)

// Expect notes that a search expires, at a time in Unix ms.
func (s *Cleaner) Expect(expires int64) {
	if from := emptyFrom(expires + s.what.Stays.Milliseconds()); s.next == 0 || from < s.next {
		s.next = from
	}
}

// emptyFrom returns the time when a text is removed: the next full minute after its time is
// over. Both times are in Unix ms.
func emptyFrom(expires int64) int64 {
	return (expires/emptyEvery.Milliseconds() + 1) * emptyEvery.Milliseconds()
}

func (s *Cleaner) Due(now time.Time) bool { return s.next != 0 && now.UnixMilli() >= s.next }

func (s *Cleaner) Do(now time.Time) {
	e := &emptyExpired{at: now, after: s.upto, what: s.what}
	s.w.DoNow(e, func(err error) {
		if err != nil {
			s.next = now.Add(emptyRetry).UnixMilli()
			s.w.Opts.Logger.Error("the texts of expired searches were not removed", "error", err)
			return
		}
		s.next, s.upto = e.next, e.upto
	})
}

// emptyExpired is the local write of Cleaner.
type emptyExpired struct {
	at    time.Time
	after relay.Position // where the scan begins
	what  Text

	// apply sets the fields below.

	next int64          // when there will be more to do, in Unix ms; 0: never
	upto relay.Position // how far the scan came
}

func (e *emptyExpired) Size() int { return 0 }

func (e *emptyExpired) Apply(t *engine.Tx) error {
	var due []relay.Position
	var rows, bytes int64
	now, end := e.at.UnixMilli(), e.at.Add(2*relay.SearchLife+e.what.Stays).UnixMilli()
	e.next, e.upto = 0, e.after
	r := t.C.Query("SELECT position, expires_at, "+e.what.Size+" FROM search WHERE position > ? ORDER BY position LIMIT ?",
		int64(e.after), int64(emptyRows+1))
	for r.Next() {
		expires := r.Int(1) + e.what.Stays.Milliseconds()
		if rows++; rows > emptyRows || bytes > emptyBytes {
			e.next = now // at once, after the jobs that are queued
			break
		}
		if expires > now && expires <= end {
			e.next = emptyFrom(expires)
			break
		}
		e.upto = relay.Position(r.Int(0))
		// saved while the clock was far ahead; skipped, so that it does not hold up others, until the next start
		if expires > end {
			continue
		}
		if r.Int(2) > 0 {
			due, bytes = append(due, e.upto), bytes+r.Int(2)
		}
	}
	if err := r.Close(); err != nil {
		return err
	}
	return emptySearches(t, due, e.what)
}

// Search reads the answer to a search, for the Mecha that asked (PROTOCOL §5, Search
// result). Errors: SearchNotFound, even if newer answers have only replaced it;
// NotYourSearch; SearchExpired, an hour after the search.
func (a *Answers) Search(ctx context.Context, id relay.SearchID, caller relay.MechaNumber) (answer []byte, err error) {
	err = a.w.As(caller).Point(ctx, func(x *engine.Rx) error {
		var owner, expires int64
		found, err := x.C.Row(func(r *sqlite.Rows) { owner, expires, answer = r.Int(0), r.Int(1), []byte(r.Text(2)) },
			"SELECT mecha, expires_at, answer FROM search WHERE id = ?", string(id))
		switch {
		case err != nil:
			return err
		case !found:
			if a.w.Opts.Gate != nil {
				return relay.Errorf(relay.SearchNotFound,
					"this node of the cluster has no search %s: the node that was asked for it has its answer",
					relay.Quote(string(id)))
			}
			return relay.Errorf(relay.SearchNotFound, "there is no search %s", relay.Quote(string(id)))
		case relay.MechaNumber(owner) != caller:
			return relay.Errorf(relay.NotYourSearch, "another Mecha asked for this search")
		case x.Now.UnixMilli() >= expires:
			return relay.Errorf(relay.SearchExpired, "the answer was kept until %s; search again",
				relay.FormatTime(relay.UnixMilli(expires)))
		case len(answer) == 0:
			return relay.Errorf(relay.SearchNotFound, "the answer of %s had to make room for newer ones; search again",
				relay.Quote(string(id)))
		}
		return nil
	})
	return answer, err
}
