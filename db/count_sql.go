package db

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"relay/db/internal/sqlite"
	"relay/db/relay"
)

const someExchange = "SELECT count(*) FROM (SELECT 1 FROM exchange LIMIT 1)" // 1 if there is one

// countedPart is the outcome of a CountExchanges: whether there are exchanges of further Mechas, and
// of which Mecha those are that come next.
type countedPart struct {
	more bool
	next relay.MechaNumber
}

// countExchanges counts exchanges and removes them. Without a half-life it only removes them.
func (t *tx) countExchanges(c *relay.CountExchanges) (out countedPart, err error) {
	all, out, err := t.exchanges(c.From, max(c.Most, 1))
	if err != nil || len(all) == 0 {
		return out, err
	}
	last := all[len(all)-1]
	err = t.erasing(func() error {
		if c.HalfLife > 0 {
			if err := t.countAll(all, c); err != nil {
				return err
			}
		}
		return t.c.Exec("DELETE FROM exchange WHERE recipient >= ? AND (recipient, position) <= (?, ?)", int64(c.From), int64(last.recipient), int64(last.position))
	})
	return out, err
}

// exchange is a row of the table of that name.
type exchange struct {
	recipient relay.MechaNumber
	position  relay.Position // of the receipt that ended it
	sender    relay.MechaNumber
	completed bool
	hour      int64
	words     []string
}

// exchanges reads those of the Mechas with the lowest numbers, beginning with one, in the order in
// which they ended. It gives all of a Mecha if there is room for them. out says what is left.
func (x *rx) exchanges(from relay.MechaNumber, most int) (all []exchange, out countedPart, err error) {
	r := x.c.Query("SELECT recipient, position, sender, completed, hour, words FROM exchange WHERE recipient >= ? ORDER BY recipient, position LIMIT ?", int64(from), int64(most+1))
	for r.Next() {
		if len(all) == most {
			out = countedPart{more: true, next: relay.MechaNumber(r.Int(0))}
			break
		}
		all = append(all, exchange{relay.MechaNumber(r.Int(0)), relay.Position(r.Int(1)), relay.MechaNumber(r.Int(2)), r.Int(3) != 0, r.Int(4), strings.Split(r.Text(5), "\n")})
	}
	for n := len(all); out.more && all[0].recipient != out.next && all[n-1].recipient == out.next; n-- {
		all = all[:n-1]
	}
	return all, out, r.Close()
}

// countAll counts exchanges, which are sorted by the recipients. So each page of words is read and
// written once.
func (t *tx) countAll(all []exchange, c *relay.CountExchanges) error {
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].recipient == all[0].recipient {
			n++
		}
		if err := t.countOf(all[:n], c); err != nil {
			return err
		}
		all = all[n:]
	}
	return nil
}

// countOf counts exchanges of one Mecha.
func (t *tx) countOf(all []exchange, c *relay.CountExchanges) error {
	l := learning{t: t, mecha: all[0].recipient, halfLife: c.HalfLife}
	var err error
	if l.learner, err = t.learner(l.mecha); err != nil || l.off {
		return err
	}
	for _, e := range all {
		if err := l.add(e); err != nil {
			return err
		}
	}
	return l.write(all, c.At)
}

// learning is what a count changes of one Mecha.
type learning struct {
	learner
	t        *tx
	mecha    relay.MechaNumber
	halfLife time.Duration
	pages    []*wordPage // those that the count has read, as they came
	changed  bool
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
func (l *learning) add(e exchange) error {
	sender, err := l.t.address(int64(e.sender))
	if err != nil {
		return err
	}
	most := int64(0)
	for _, word := range e.words {
		changed, err := l.countWord(word, e, sender)
		if err != nil {
			return err
		}
		if max(changed, -changed) > max(most, -most) {
			most = changed
		}
	}
	l.exchanges = max(relay.Fade(l.exchanges, e.hour-l.hour, l.halfLife)+most, 0)
	l.hour = max(l.hour, e.hour)
	return nil
}

// countWord counts an exchange for one word, or takes one back. It gives by how much the
// weight of the word has changed.
func (l *learning) countWord(word string, e exchange, from relay.Address) (changed int64, err error) {
	page, err := l.page(word)
	if err != nil {
		return 0, err
	}
	all, err := page.sharesOf(word)
	if err != nil {
		return 0, err
	}
	crew := l.t.crewNumber(l.mecha, word, from.Crew())
	sender := uint32(l.t.ids.Hash('s', int64(l.mecha), []byte(word+"\n"+string(from))))
	before, _ := all.weight(e.hour, l.halfLife)
	switch {
	case e.completed:
		all = all.count(crew, sender, e.hour, l.halfLife)
	case all.find(crew, sender) >= 0:
		all = all.takeBack(crew, sender, e.hour, l.halfLife)
	default:
		return 0, nil
	}
	page.set(word, all)
	l.changed = true
	after, _ := all.weight(e.hour, l.halfLife)
	return after - before, nil
}

// crewNumber is the number by which the shares of a word and a Mecha name a crew.
func (t *tx) crewNumber(id relay.MechaNumber, word, crew string) uint32 {
	return uint32(t.ids.Hash('c', int64(id), []byte(word+"\n"+crew)))
}

// page finds the page that covers a word: in the file, if this count has not read it yet.
func (l *learning) page(word string) (*wordPage, error) {
	for _, p := range l.pages {
		if p.covers(word) {
			return p, nil
		}
	}
	p := &wordPage{}
	if l.known > 0 {
		var broken error
		there, err := l.t.c.Row(func(r *sqlite.Rows) {
			p.first, p.next, p.stored = r.Text(0), r.Text(2), true
			p.words, broken = decodeWords(r.Blob(1))
			p.before = len(p.words)
		}, `SELECT first, counts, (SELECT n.first FROM learned n WHERE n.mecha = l.mecha AND n.first > l.first ORDER BY n.first LIMIT 1)
			FROM learned l WHERE mecha = ? AND first <= ? ORDER BY first DESC LIMIT 1`, int64(l.mecha), word)
		if !there { // the first page of a Mecha covers all words that are before others
			broken = errShares()
		}
		if err = cmp.Or(err, broken); err != nil {
			return nil, err
		}
	}
	l.pages = append(l.pages, p)
	return p, nil
}

// write writes what the count of these exchanges has changed.
func (l *learning) write(counted []exchange, at time.Time) error {
	if !l.changed {
		return nil
	}
	for _, p := range l.pages {
		l.known += int64(len(p.words) - p.before)
	}
	var err error
	if l.known == 0 {
		err = l.t.c.Exec("DELETE FROM learned WHERE mecha = ?", int64(l.mecha))
	} else {
		for _, p := range l.pages {
			err = cmp.Or(err, l.t.writePage(l.mecha, p))
		}
		if err == nil && l.known > relay.MaxLearnedWords {
			err = l.dropWords(counted, hourOf(at))
		}
	}
	if err != nil {
		return err
	}
	return l.t.putLearner(l.mecha, l.learner, l.t.position(at))
}

// writePage writes a page that has changed, in several rows if it has grown too long. A page
// without words goes, but for the first one of a Mecha: then the page before it covers its
// words. The page must not be used any more.
func (t *tx) writePage(id relay.MechaNumber, p *wordPage) error {
	switch {
	case !p.changed:
		return nil
	case len(p.words) == 0 && p.first != "":
		return t.c.Exec("DELETE FROM learned WHERE mecha = ? AND first = ?", int64(id), p.first)
	}
	for _, part := range p.split() {
		query := "INSERT INTO learned (words, counts, mecha, first) VALUES (?, ?, ?, ?)"
		if part.stored {
			query = "UPDATE learned SET words = ?, counts = ? WHERE mecha = ? AND first = ?"
		}
		if err := t.c.Exec(query, int64(len(part.words)), part.encode(), int64(id), part.first); err != nil {
			return err
		}
	}
	return nil
}

// dropWords removes the words of a Mecha that are worth least as of an hour, so that a
// twentieth of the room is free: the next new words then need no look through all. It
// packs those that stay.
func (l *learning) dropWords(counted []exchange, hour int64) error {
	all, err := l.t.wordsOf(l.mecha)
	if err != nil {
		return err
	}
	crews, err := l.crews(counted)
	if err != nil {
		return err
	}
	var kept []keptWord
	for i := range all {
		w := keptWord{pagedWord: &all[i]}
		var crewCount int
		w.weight, crewCount = w.shares.weight(hour, l.halfLife)
		w.crews, w.senders = min(crewCount, 2), min(len(w.shares), 2)
		if w.crews < 2 {
			w.of = slices.IndexFunc(crews, func(crew string) bool { return w.shares[0].crew == l.t.crewNumber(l.mecha, w.word, crew) })
		}
		kept = append(kept, w)
	}
	kept = inOrderOfWorth(kept)[:relay.MaxLearnedWords-relay.MaxLearnedWords/20]
	page := wordPage{changed: true}
	for _, w := range kept {
		page.words = append(page.words, *w.pagedWord)
	}
	slices.SortFunc(page.words, func(a, b pagedWord) int { return cmp.Compare(a.word, b.word) })
	l.known = int64(len(kept))
	if err := l.t.c.Exec("DELETE FROM learned WHERE mecha = ?", int64(l.mecha)); err != nil {
		return err
	}
	return l.t.writePage(l.mecha, &page)
}

// crews are those of the senders of exchanges, each once, in their order.
func (l *learning) crews(counted []exchange) ([]string, error) {
	crews := map[string]bool{}
	for _, e := range counted {
		sender, err := l.t.address(int64(e.sender))
		if err != nil {
			return nil, err
		}
		crews[sender.Crew()] = true
	}
	return slices.Sorted(maps.Keys(crews)), nil
}

// A keptWord is a word of a Mecha, with what decides whether it stays.
type keptWord struct {
	*pagedWord
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

// wordsOf reads the words of a Mecha, in their order, with their shares.
func (x *rx) wordsOf(id relay.MechaNumber) (all []pagedWord, err error) {
	r := x.c.Query("SELECT counts FROM learned WHERE mecha = ? ORDER BY first", int64(id))
	for err == nil && r.Next() {
		var words []pagedWord
		words, err = decodeWords(r.Blob(0))
		for i := 0; err == nil && i < len(words); i++ {
			_, err = words[i].read()
		}
		all = append(all, words...)
	}
	return all, cmp.Or(r.Close(), err)
}
