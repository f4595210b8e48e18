package db

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// What discovery learns (PROTOCOL §5, Learning) comes this way: SaveSearch keeps the words of
// a search and whom it listed (found_sql.go). A message that names the search takes the words
// along (message.sought). Its final acknowledgement makes a row of `exchange`, which costs it
// next to nothing. The servant newCounts soon counts many of these together (learned, learner).
// The search index follows learner.position.

// soughtWords is the form in which the file has the words of a search. "" is none.
func soughtWords(words []string) string { return strings.Join(words, "\n") }

const (
	countAtOnce = 256                    // exchanges in one transaction, because other jobs wait for it
	countAfter  = 200 * time.Millisecond // how long an exchange waits for others
	countPause  = 50 * time.Millisecond  // between two transactions, if many exchanges wait

	earliestExchange = "SELECT count(*) FROM (SELECT 1 FROM exchange LIMIT 1)" // 1, which is long ago, if there is one
)

// ended notes a final acknowledgement of a message. p is the position of its receipt, sought
// the words of the search that had found the recipient, if there was one. No Mecha counts for
// itself.
func (t *tx) ended(a *relay.Acknowledge, m *relay.Message, sought string, p relay.Position) error {
	if sought == "" || !a.Learns || m.Sender == m.Recipient {
		return nil
	}
	t.w.counts.expect(a.At.Add(countAfter).UnixMilli())
	return t.c.Exec("INSERT INTO exchange (position, recipient, sender, completed, hour, words) VALUES (?, ?, ?, ?, ?, ?)",
		int64(p), int64(m.Recipient), int64(m.Sender), boolInt(a.Status == relay.Completed), hourOf(a.At), sought)
}

// countExchanges counts exchanges and removes them, and tells when there will be more to count.
// Without a half-life it only removes them.
func (t *tx) countExchanges(c *relay.CountExchanges) (nextDue, error) {
	all, more, err := t.exchanges(max(c.Most, 1))
	if err != nil || len(all) == 0 {
		return 0, err
	}
	n := count{t: t, halfLife: c.HalfLife, of: map[relay.MechaNumber]*learning{}}
	if c.HalfLife > 0 {
		for _, e := range all {
			if err := n.add(e); err != nil {
				return 0, err
			}
		}
	}
	err = t.erasing(func() error {
		for _, l := range n.order {
			if err := n.write(l, c.At); err != nil {
				return err
			}
		}
		return t.c.Exec("DELETE FROM exchange WHERE position <= ?", int64(all[len(all)-1].position))
	})
	if err != nil || !more {
		return 0, err
	}
	return nextDue(c.At.Add(countPause).UnixMilli()), nil
}

// exchange is a row of the table of that name.
type exchange struct {
	position          relay.Position
	recipient, sender relay.MechaNumber
	completed         bool
	hour              int64
	words             []string
}

// exchanges reads the earliest exchanges. more says that there are further ones.
func (x *rx) exchanges(most int) (all []exchange, more bool, err error) {
	r := x.c.Query("SELECT position, recipient, sender, completed, hour, words FROM exchange ORDER BY position LIMIT ?", int64(most+1))
	for r.Next() {
		if more = len(all) == most; more {
			break
		}
		all = append(all, exchange{relay.Position(r.Int(0)), relay.MechaNumber(r.Int(1)), relay.MechaNumber(r.Int(2)), r.Int(3) != 0, r.Int(4), strings.Split(r.Text(5), "\n")})
	}
	return all, more, r.Close()
}

// A count is a CountExchanges under way.
type count struct {
	t        *tx
	halfLife time.Duration
	of       map[relay.MechaNumber]*learning
	order    []*learning // those of the map, as they came
}

// learning is what a count changes of one Mecha.
type learning struct {
	learner
	mecha   relay.MechaNumber
	words   map[string]*learnedWord
	order   []*learnedWord  // those of the map, as they came
	crews   map[string]bool // of the senders
	changed bool
}

type learnedWord struct {
	word    string
	shares  shares
	known   bool // the file has it
	changed bool
}

// learner is a row of the table of that name.
type learner struct {
	exchanges int64 // as of hour, in 1/relay.LearnedUnit
	hour      int64
	known     int64 // how many words the file has
	off       bool  // the profile says that nothing is to be learned
}

func (t *tx) learner(id relay.MechaNumber) (l learner, err error) {
	_, err = t.c.Row(func(r *sqlite.Rows) { l = learner{r.Int(0), r.Int(1), r.Int(2), r.Int(3) != 0} },
		"SELECT exchanges, hour, words, off FROM learner WHERE mecha = ?", int64(id))
	return l, err
}

// add counts one exchange.
func (n *count) add(e exchange) error {
	l := n.of[e.recipient]
	if l == nil {
		row, err := n.t.learner(e.recipient)
		if err != nil {
			return err
		}
		l = &learning{learner: row, mecha: e.recipient, words: map[string]*learnedWord{}, crews: map[string]bool{}}
		n.of[e.recipient], n.order = l, append(n.order, l)
	}
	if l.off {
		return nil
	}
	sender, err := n.t.address(int64(e.sender))
	if err != nil {
		return err
	}
	l.crews[sender.Crew()] = true
	most := int64(0)
	for _, word := range e.words {
		w, err := n.word(l, word)
		if err != nil {
			return err
		}
		if changed := n.countWord(w, e, sender); max(changed, -changed) > max(most, -most) {
			most = changed
		}
		l.changed = l.changed || w.changed
	}
	l.exchanges = max(relay.Fade(l.exchanges, e.hour-l.hour, n.halfLife)+most, 0)
	l.hour = max(l.hour, e.hour)
	return nil
}

// word finds a word of a Mecha, in the file if this count has not met it yet.
func (n *count) word(l *learning, word string) (w *learnedWord, err error) {
	if w = l.words[word]; w != nil {
		return w, nil
	}
	w = &learnedWord{word: word}
	var broken error
	w.known, err = n.t.c.Row(func(r *sqlite.Rows) { w.shares, broken = decodeShares(r.Blob(0)) },
		"SELECT shares FROM learned WHERE mecha = ? AND word = ?", int64(l.mecha), word)
	l.words[word], l.order = w, append(l.order, w)
	return w, cmp.Or(err, broken)
}

// countWord counts an exchange for one word, or takes one back. It gives by how much the
// weight of the word has changed.
func (n *count) countWord(w *learnedWord, e exchange, from relay.Address) (changed int64) {
	hour := e.hour
	crew := n.t.crewNumber(e.recipient, w.word, from.Crew())
	sender := uint32(n.t.ids.Hash('s', int64(e.recipient), []byte(w.word+"\n"+string(from))))
	before, _ := w.shares.weight(hour, n.halfLife)
	if e.completed {
		w.shares, w.changed = w.shares.count(crew, sender, hour, n.halfLife), true
	} else if w.shares.find(crew, sender) >= 0 {
		w.shares, w.changed = w.shares.takeBack(crew, sender, hour, n.halfLife), true
	}
	after, _ := w.shares.weight(hour, n.halfLife)
	return after - before
}

// crewNumber is the number by which the shares of a word and a Mecha name a crew.
func (t *tx) crewNumber(id relay.MechaNumber, word, crew string) uint32 {
	return uint32(t.ids.Hash('c', int64(id), []byte(word+"\n"+crew)))
}

// write writes what the count has changed of a Mecha.
func (n *count) write(l *learning, at time.Time) error {
	if !l.changed {
		return nil
	}
	for _, w := range l.order {
		var err error
		switch {
		case !w.changed || len(w.shares) == 0 && !w.known:
		case len(w.shares) == 0:
			l.known--
			err = n.t.c.Exec("DELETE FROM learned WHERE mecha = ? AND word = ?", int64(l.mecha), w.word)
		case w.known:
			err = n.t.c.Exec("UPDATE learned SET shares = ? WHERE mecha = ? AND word = ?", w.shares.encode(), int64(l.mecha), w.word)
		default:
			l.known++
			err = n.t.c.Exec("INSERT INTO learned (mecha, word, shares) VALUES (?, ?, ?)", int64(l.mecha), w.word, w.shares.encode())
		}
		if err != nil {
			return err
		}
	}
	if l.known > relay.MaxLearnedWords {
		var err error
		if l.known, err = n.dropWords(l, hourOf(at)); err != nil {
			return err
		}
	}
	return n.t.putLearner(l.mecha, l.learner, n.t.position(at))
}

// dropWords removes the words of a Mecha that are worth least as of an hour, so that a
// twentieth of the room is free: the next new words then need no look through all. It gives
// how many words are left.
func (n *count) dropWords(l *learning, hour int64) (left int64, err error) {
	var all []keptWord
	crews := slices.Sorted(maps.Keys(l.crews))
	err = n.t.eachLearned(l.mecha, func(word string, s shares) {
		w := keptWord{word: word}
		var crewCount int
		w.weight, crewCount = s.weight(hour, n.halfLife)
		w.crews, w.senders = min(crewCount, 2), min(len(s), 2)
		if w.crews < 2 {
			w.of = slices.IndexFunc(crews, func(crew string) bool { return s[0].crew == n.t.crewNumber(l.mecha, word, crew) })
		}
		all = append(all, w)
	})
	if err != nil {
		return 0, err
	}
	keep := relay.MaxLearnedWords - relay.MaxLearnedWords/20
	for _, w := range inOrderOfWorth(all)[keep:] {
		if err := n.t.c.Exec("DELETE FROM learned WHERE mecha = ? AND word = ?", int64(l.mecha), w.word); err != nil {
			return 0, err
		}
	}
	return int64(keep), nil
}

// A keptWord is a word of a Mecha, with what decides whether it stays.
type keptWord struct {
	word    string
	weight  int64
	crews   int // at most 2
	senders int // at most 2
	of      int // the number of the crew, if one crew alone has reported the word and has exchanges in this count; else -1
	rank    int // the place of the word among those with the same of
}

// inOrderOfWorth sorts words by what they are worth, the best first. Words that several crews have
// reported come before the words of one crew. The words of one crew come in turns: one word of each
// crew that has exchanges in this count, and one of all other crews together. So a crew that adds many
// words loses its own first.
func inOrderOfWorth(all []keptWord) []keptWord {
	worth := func(a, b keptWord) int {
		return cmp.Or(cmp.Compare(b.crews, a.crews), cmp.Compare(a.rank, b.rank), cmp.Compare(b.senders, a.senders),
			cmp.Compare(b.weight, a.weight), cmp.Compare(a.word, b.word))
	}
	slices.SortFunc(all, worth)
	ranks := map[int]int{}
	for i := range all {
		if w := &all[i]; w.crews < 2 {
			w.rank = ranks[w.of]
			ranks[w.of]++
		}
	}
	slices.SortFunc(all, worth)
	return all
}

// eachLearned calls f with the words of a Mecha, in their order.
func (x *rx) eachLearned(id relay.MechaNumber, f func(word string, all shares)) error {
	r := x.c.Query("SELECT word, shares FROM learned WHERE mecha = ? ORDER BY word", int64(id))
	for r.Next() {
		all, err := decodeShares(r.Blob(1))
		if err != nil {
			r.Close()
			return err
		}
		f(r.Text(0), all)
	}
	return r.Close()
}

// putLearner writes the row of a Mecha. Its position is p, unless another process has given
// out later ones: the search index must not miss this change.
func (t *tx) putLearner(id relay.MechaNumber, l learner, p relay.Position) error {
	t.learnedChanged = true
	_, err := t.c.Row(func(r *sqlite.Rows) { t.last = max(t.last, relay.Position(r.Int(0))) },
		`INSERT OR REPLACE INTO learner (mecha, position, exchanges, hour, words, off)
			VALUES (?1, max(?2, coalesce((SELECT max(position) + 1 FROM learner), 0)), ?3, ?4, ?5, ?6) RETURNING position`,
		int64(id), int64(p), l.exchanges, l.hour, l.known, boolInt(l.off))
	return err
}

// forgetLearned removes what was learned about a Mecha, if there is anything, and what would
// be. off is what its profile says from now on.
func (t *tx) forgetLearned(id relay.MechaNumber, off bool, at time.Time) error {
	err := t.erasing(func() error { return t.c.Exec("DELETE FROM exchange WHERE recipient = ?", int64(id)) })
	if err != nil {
		return err
	}
	known, err := t.c.Row(nil, "SELECT 1 FROM learner WHERE mecha = ?", int64(id))
	if err != nil || !known && !off {
		return err
	}
	err = t.erasing(func() error { return t.c.Exec("DELETE FROM learned WHERE mecha = ?", int64(id)) })
	if err != nil {
		return err
	}
	return t.putLearner(id, learner{off: off}, t.position(at))
}

// setLearning notes what a new profile says about learning.
func (t *tx) setLearning(id relay.MechaNumber, off bool, at time.Time) error {
	if off {
		return t.forgetLearned(id, true, at)
	}
	return t.c.Exec("UPDATE learner SET off = 0 WHERE mecha = ? AND off = 1", int64(id))
}

// erasing runs f so that SQLite overwrites what f removes, also where whole pages become free.
// That costs writes, so it is not for every job.
func (t *tx) erasing(f func() error) error {
	if _, err := t.c.Row(nil, "PRAGMA secure_delete = ON"); err != nil {
		return err
	}
	err := f()
	if _, off := t.c.Row(nil, "PRAGMA secure_delete = FAST"); err == nil {
		err = off
	}
	return err
}

// ForgetLearned removes what completed exchanges have taught about a Mecha, and returns once
// that is durable (PROTOCOL §5, Learning). Errors: MechaNotFound, and those of every write.
// Safe for concurrent use.
func (d *DB) ForgetLearned(f *relay.ForgetLearned) error {
	_, err := administer(d, f, (*tx).forget)
	return err
}

func (t *tx) forget(f *relay.ForgetLearned) (none, error) {
	id, err := t.mecha(f.Address)
	if err == nil && id == 0 {
		err = errMechaNotFound(f.Address)
	}
	if err != nil {
		return none{}, err
	}
	l, err := t.learner(id)
	if err != nil {
		return none{}, err
	}
	return none{}, t.forgetLearned(id, l.off, f.At)
}

// learnedAtOnce is about how many words one read of Learned gives.
const learnedAtOnce = 20_000

// Learned gives up to limit Mechas whose counts have changed after a position, each with all
// its words, in the order of the positions. It may give fewer, but gives none only if there
// are no more. Without Options.LearnHalfLife there are none. The search index follows by it,
// woken by OnEntries. Safe for concurrent use.
func (d *DB) Learned(ctx context.Context, after relay.Position, limit int) (all []relay.Learned, err error) {
	if d.opts.LearnHalfLife == 0 {
		return nil, nil
	}
	err = d.readIn(ctx, d.readers.scan(0), func(x *rx) error {
		all, err = x.learned(after, limit, d.opts.LearnHalfLife)
		return err
	})
	return all, err
}

func (x *rx) learned(after relay.Position, limit int, halfLife time.Duration) (all []relay.Learned, err error) {
	words := int64(0)
	r := x.c.Query("SELECT mecha, position, exchanges, hour, words FROM learner WHERE position > ? ORDER BY position LIMIT ?", int64(after), int64(limit))
	for words < learnedAtOnce && r.Next() {
		all = append(all, relay.Learned{Mecha: relay.MechaNumber(r.Int(0)), Position: relay.Position(r.Int(1)),
			Exchanges: inExchanges(r.Int(2)), At: timeOfHour(r.Int(3))})
		words += r.Int(4)
	}
	if err := r.Close(); err != nil {
		return nil, err
	}
	for i := range all {
		err := x.eachLearned(all[i].Mecha, func(word string, s shares) {
			hour := s.last()
			weight, crews := s.weight(hour, halfLife)
			all[i].Words = append(all[i].Words, relay.LearnedWord{Word: word, Weight: inExchanges(weight), At: timeOfHour(hour), Crews: crews})
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

func inExchanges(n int64) float64 { return float64(n) / relay.LearnedUnit }
