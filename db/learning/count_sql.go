package learning

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"relay/db/internal/engine"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

const someExchange = "SELECT count(*) FROM (SELECT 1 FROM exchange LIMIT 1)" // 1 if there is one

// countExchanges counts exchanges and removes the exchanges of a finished round. Without a
// half-life it only removes them. more reports whether the round continues.
func (l *Learning) countExchanges(t *engine.Tx, c *relay.CountExchanges) (more bool, err error) {
	rest, upto, begun, err := l.round(t)
	if err != nil || len(rest) == 0 && !begun {
		return false, err
	}
	part := rest
	if c.HalfLife > 0 {
		part = firstOfRound(rest, max(c.Limit, 1))
	}
	return len(part) < len(rest), t.Erasing(func() error {
		if c.HalfLife > 0 {
			if err := l.countAll(t, part, c); err != nil {
				return err
			}
		}
		if len(part) < len(rest) {
			return l.continueRound(t, upto, rest[len(part)])
		}
		return l.endRound(t, upto)
	})
}

// firstOfRound returns the first of the exchanges of a round. It returns all exchanges of a Mecha if
// there is room for them.
func firstOfRound(rest []exchange, limit int) []exchange {
	if len(rest) <= limit {
		return rest
	}
	n := limit
	for n > 0 && rest[n-1].recipient == rest[n].recipient {
		n--
	}
	if n == 0 {
		n = limit
	}
	return rest[:n]
}

// countAll counts exchanges, which are sorted by the recipients. So each page of words is read and
// written once.
func (room *Learning) countAll(t *engine.Tx, all []exchange, c *relay.CountExchanges) error {
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].recipient == all[0].recipient {
			n++
		}
		l := tally{Learning: room, t: t, mecha: all[0].recipient, halfLife: c.HalfLife, senders: room.counts.round.senders}
		if err := l.count(all[:n], c.At); err != nil {
			return err
		}
		all = all[n:]
	}
	return nil
}

// tally has the changes of one Mecha by a count.
type tally struct {
	*Learning
	learner
	t        *engine.Tx
	mecha    relay.MechaNumber
	halfLife time.Duration
	senders  map[relay.MechaNumber]relay.Address // senders in this round
	pages    []*wordPage                         // pages that the count has read, in order
	last     *wordPage                           // the page that page returned last
	changed  bool
	// of the Mecha; of it and of the present exchange's sender and crew; for countWord
	tags struct{ mecha, sender, crew, word relay.Tag }
}

// count counts exchanges of the Mecha.
func (l *tally) count(all []exchange, at time.Time) (err error) {
	if l.learner, err = l.Learning.learner(l.t, l.mecha); err != nil || l.off {
		return err
	}
	l.t.IDs.Extend(&l.tags.mecha, strconv.FormatInt(int64(l.mecha), 10))
	for _, e := range all {
		if err := l.add(e); err != nil {
			return err
		}
	}
	return l.write(all, at)
}

// learner is a row of the table learner.
type learner struct {
	exchanges int64 // as of hour, in 1/relay.LearnedUnit
	hour      int64
	known     int64 // how many words the file has
	off       bool  // the profile forbids learning
}

func (room *Learning) learner(t *engine.Tx, id relay.MechaNumber) (l learner, err error) {
	_, err = t.C.Row(func(r *sqlite.Rows) { l = learner{r.Int(0), r.Int(1), r.Int(2), r.Int(3) != 0} },
		"SELECT exchanges, hour, words, off FROM learner WHERE mecha = ?", int64(id))
	return l, err
}

// add counts one exchange.
func (l *tally) add(e exchange) error {
	sender, err := l.sender(e.sender)
	if err != nil {
		return err
	}
	l.tags.sender, l.tags.crew = l.tags.mecha, l.crewTag(sender.Crew())
	l.t.IDs.Extend(&l.tags.sender, string(sender))
	most := int64(0)
	for word := range strings.SplitSeq(e.words, "\n") {
		changed, err := l.countWord(word, e)
		if err != nil {
			return err
		}
		if max(changed, -changed) > max(most, -most) {
			most = changed
		}
	}
	l.exchanges = max(fade(l.exchanges, e.hour-l.hour, l.halfLife)+most, 0)
	l.hour = max(l.hour, e.hour)
	return nil
}

// sender returns the address of a sender.
func (l *tally) sender(id relay.MechaNumber) (relay.Address, error) {
	a, known := l.senders[id]
	if known {
		return a, nil
	}
	a, err := engine.Address(&l.t.Rx, int64(id))
	if err == nil {
		l.senders[id] = a
	}
	return a, err
}

// countWord counts an exchange for one word, or takes one back, and returns by how much
// the weight of the word has changed.
func (l *tally) countWord(word string, e exchange) (changed int64, err error) {
	page, err := l.page(word)
	if err != nil {
		return 0, err
	}
	at, there := page.find(word)
	var all shares
	if there {
		if all, err = page.words[at].read(); err != nil {
			return 0, err
		}
	}
	sender := l.number(&l.tags.sender, word)
	i := all.find(sender)
	switch {
	case i >= 0 && e.completed:
		if all[i].isFull(e.hour) {
			return 0, nil
		}
		all, changed = all.count(i, e.hour, l.halfLife)
	case i >= 0:
		all, changed = all.takeBack(i, e.hour, l.halfLife)
	case e.completed:
		all = append(all, share{crew: l.number(&l.tags.crew, word), sender: sender, hour: e.hour})
		all, changed = all.count(len(all)-1, e.hour, l.halfLife)
	default:
		return 0, nil
	}
	page.set(at, there, word, all)
	l.changed = true
	return changed, nil
}

// crewTag returns the tag of the Mecha and a crew.
func (l *tally) crewTag(crew string) relay.Tag {
	t := l.tags.mecha
	l.t.IDs.Extend(&t, "^"+crew) // not an address of a sender
	return t
}

// number returns the number by which the shares of a word name the sender or the crew of a tag.
func (l *tally) number(of *relay.Tag, word string) uint32 {
	l.tags.word = *of
	l.t.IDs.Extend(&l.tags.word, word)
	return l.tags.word.Number()
}

// page finds the page that covers a word: in the file, if this count has not read it yet.
func (l *tally) page(word string) (*wordPage, error) {
	if l.last != nil && l.last.covers(word) { // the words of an exchange come in their order
		return l.last, nil
	}
	at, found := slices.BinarySearchFunc(l.pages, word, func(p *wordPage, word string) int {
		return cmp.Compare(p.first, word)
	})
	if !found {
		at-- // to the last page that begins before the word
	}
	if at < 0 || !l.pages[at].covers(word) {
		p, err := l.readPage(word)
		if err != nil {
			return nil, err
		}
		at++
		l.pages = slices.Insert(l.pages, at, p)
	}
	l.last = l.pages[at]
	return l.last, nil
}

// readPage reads the page that covers a word, or returns an empty one if the Mecha has no page.
func (l *tally) readPage(word string) (*wordPage, error) {
	p := &wordPage{}
	if l.known == 0 {
		return p, nil
	}
	var broken error
	there, err := l.t.C.Row(func(r *sqlite.Rows) {
		p.first, p.next, p.stored = r.Text(0), r.Text(2), true
		p.words, broken = decodeWords(r.Blob(1))
		p.before = len(p.words)
	},
		`SELECT first, counts,
			(SELECT n.first FROM learned n WHERE n.mecha = l.mecha AND n.first > l.first ORDER BY n.first LIMIT 1)
		FROM learned l WHERE mecha = ? AND first <= ? ORDER BY first DESC LIMIT 1`, int64(l.mecha), word)
	if !there { // the first page of a Mecha also covers all earlier words
		broken = errShares()
	}
	return p, cmp.Or(err, broken)
}

// write writes the changes by the count of these exchanges.
func (l *tally) write(counted []exchange, at time.Time) error {
	if !l.changed {
		return nil
	}
	for _, p := range l.pages {
		l.known += int64(len(p.words) - p.before)
	}
	var err error
	if l.known == 0 {
		err = l.t.C.Exec("DELETE FROM learned WHERE mecha = ?", int64(l.mecha))
	} else {
		for _, p := range l.pages {
			err = cmp.Or(err, l.Learning.writePage(l.t, l.mecha, p))
		}
		if err == nil && l.known > relay.MaxLearnedWords {
			err = l.dropWords(counted, hourOf(at))
		}
	}
	if err != nil {
		return err
	}
	return l.Learning.putLearner(l.t, l.mecha, l.learner, l.t.Position(at))
}

// writePage writes a page that has changed, in several rows if it has grown too long. A page
// without words is deleted, except the first one of a Mecha: then the page before it covers
// its words. The page must not be used any more.
func (l *Learning) writePage(t *engine.Tx, id relay.MechaNumber, p *wordPage) error {
	switch {
	case !p.changed:
		return nil
	case len(p.words) == 0 && p.first != "":
		return t.C.Exec("DELETE FROM learned WHERE mecha = ? AND first = ?", int64(id), p.first)
	}
	for _, part := range p.split() {
		query := "INSERT INTO learned (words, counts, mecha, first) VALUES (?, ?, ?, ?)"
		if part.stored {
			query = "UPDATE learned SET words = ?, counts = ? WHERE mecha = ? AND first = ?"
		}
		if err := t.C.Exec(query, int64(len(part.words)), part.encode(), int64(id), part.first); err != nil {
			return err
		}
	}
	return nil
}

// dropWords removes the least valuable words of a Mecha at an hour, until a twentieth of the
// places is free, so that the next new words do not each need a search through all words. It packs
// the rest.
func (l *tally) dropWords(counted []exchange, hour int64) error {
	all, err := wordsOf(&l.t.Rx, l.mecha)
	if err != nil {
		return err
	}
	crews, err := l.crews(counted)
	if err != nil {
		return err
	}
	var tags []relay.Tag
	for _, crew := range crews {
		tags = append(tags, l.crewTag(crew))
	}
	var kept []keptWord
	for i := range all {
		w := keptWord{pagedWord: &all[i]}
		var crewCount int
		w.weight, crewCount = w.shares.weight(hour, l.halfLife)
		w.crews, w.senders = min(crewCount, 2), min(len(w.shares), 2)
		if w.crews < 2 {
			w.of = slices.IndexFunc(tags, func(crew relay.Tag) bool { return w.shares[0].crew == l.number(&crew, w.word) })
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
	if err := l.t.C.Exec("DELETE FROM learned WHERE mecha = ?", int64(l.mecha)); err != nil {
		return err
	}
	return l.Learning.writePage(l.t, l.mecha, &page)
}

// crews returns the crews of the senders of exchanges, each once, in their order.
func (l *tally) crews(counted []exchange) ([]string, error) {
	crews := map[string]bool{}
	for _, e := range counted {
		sender, err := l.sender(e.sender)
		if err != nil {
			return nil, err
		}
		crews[sender.Crew()] = true
	}
	return slices.Sorted(maps.Keys(crews)), nil
}

// A keptWord is a word of a Mecha, with the values that decide whether it stays.
type keptWord struct {
	*pagedWord
	weight  int64
	crews   int // at most 2
	senders int // at most 2
	of      int // the number of the crew, if one crew alone has reported the word and has exchanges in this count; else -1
	rank    int // the place of the word among the words with the same of
}

// inOrderOfWorth sorts words by their value, the best first. Words that several crews have reported
// come before the words of one crew. The words of one crew come in turns: one word of each crew that
// has exchanges in this count, and one of all other crews together. So a crew that adds many words
// loses its own first.
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
func wordsOf(x *engine.Rx, id relay.MechaNumber) (all []pagedWord, err error) {
	r := x.C.Query("SELECT counts FROM learned WHERE mecha = ? ORDER BY first", int64(id))
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
