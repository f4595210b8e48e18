package learned

import (
	"cmp"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"relay/db/relay"
	"relay/search"
)

// Counts are what discovery has learned from completed exchanges (PROTOCOL §5, Learning): how often
// each Mecha was the right one for each word. They are only in memory, and are read from the source
// at each start. One goroutine changes them; any number may read them. They implement search.Boost.
//
// All weights are whole numbers, in 1/relay.LearnedUnit exchanges. So their sums do not depend on
// the order in which the counts came: the same counts produce the same scores.
//
// A count takes 20 bytes, and a Mecha 40. Beyond maxCounts counts, only half as many words of each
// Mecha are kept, the heaviest ones.
type Counts struct {
	source  Source
	log     *slog.Logger
	factors [fadedAway]uint32 // the factor left after so many fadeSteps, in 1/65536
	perHour uint64            // fadeSteps in an hour, in 1/2³²
	limit   int               // words of a Mecha
	room    int               // counts in all

	mu       sync.RWMutex
	position relay.Position     // of the last change that was applied
	words    map[uint32][]count // by the word's hash, in the order of the Mechas
	mechas   []mechaStats       // by number
	wordsOf  [][]uint32         // hashes, by number of the Mecha
	counts   int
	newest   uint32 // the hour of the last exchange
	total    int64  // the weight of all exchanges as of newest, at most maxExchanges for a Mecha
}

// A count is the weight of one word for one Mecha.
type count struct {
	mecha  uint32
	weight uint32
	hour   uint32 // since 1970; the weight is as of this hour
	crews  uint8  // from which the exchanges came
}

// mechaStats has the counts of one Mecha as a whole.
type mechaStats struct {
	exchanges uint32 // their weight
	hour      uint32
	crews     uint8 // the maximum number of crews of a word
}

const (
	fadeSteps = 64             // steps in which a weight fades to one half
	fadedAway = 24 * fadeSteps // after so many steps nothing is left
)

// New makes the counts of what the source has. They fade to one half in halfLife.
func New(source Source, halfLife time.Duration, log *slog.Logger) *Counts {
	perHour := math.Ceil(fadeSteps * float64(time.Hour) / float64(halfLife) * (1 << 32))
	l := &Counts{source: source, log: log, perHour: uint64(perHour), limit: relay.MaxLearnedWords, room: maxCounts}
	for i := range l.factors {
		l.factors[i] = uint32(math.Round(math.Exp2(-float64(i)/fadeSteps) * (1 << 16)))
	}
	l.forget()
	return l
}

// forget drops everything, so that the next page is the source's first.
func (l *Counts) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.position, l.words, l.mechas, l.wordsOf, l.counts, l.newest, l.total = 0, map[uint32][]count{}, nil, nil, 0, 0, 0
}

func (l *Counts) At() relay.Position {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.position
}

// fade returns what is left at hour now of a weight that was noted at hour. If hour is after now, nothing has
// faded.
func (l *Counts) fade(weight, hour, now uint32) int64 {
	if now <= hour {
		return int64(weight)
	}
	step := uint64(now-hour) * l.perHour >> 32
	if step >= fadedAway {
		return 0
	}
	return int64(weight) * int64(l.factors[step]) >> 16
}

// now returns the hour as of which weights are read: the hour of the last exchange, not
// of the clock. So the same counts produce the same order at any time, and the pages of
// one search agree. Only if the last exchange is in the future, because a clock was
// wrong, it is the clock's hour.
func (l *Counts) now() uint32 { return min(l.newest, hourOf(time.Now())) }

func hourOf(t time.Time) uint32 {
	return uint32(min(max(t.Unix(), 0)/3600, math.MaxUint32))
}

// weightOf returns a number of exchanges in 1/relay.LearnedUnit.
func weightOf(exchanges float64) uint32 {
	return uint32(math.Round(min(max(exchanges, 0), 1<<20) * relay.LearnedUnit))
}

// apply takes a page of the source, which has everything known about these Mechas. It
// reports whether there is room for it; if not, it reduces the words kept of each Mecha,
// and everything must be read again.
func (l *Counts) apply(page []relay.Learned) bool {
	if len(page) == 0 {
		return true
	}
	changes := newChanges(l, page)
	long := changes.mergeLong(l)
	l.mu.Lock()
	changes.apply(l, long)
	l.position = page[len(page)-1].Position
	l.sum()
	full := l.counts > l.room && l.limit > 1
	l.mu.Unlock()
	if full {
		l.limit /= 2
		l.forget()
	}
	return !full
}

// sum computes newest and total. The caller must hold the lock.
func (l *Counts) sum() {
	l.newest = 0
	for i := range l.mechas {
		l.newest = max(l.newest, l.mechas[i].hour)
	}
	l.total = 0
	for i := range l.mechas {
		l.total += l.exchanges(&l.mechas[i], l.newest)
	}
}

// exchanges returns the part of a Mecha in total.
func (l *Counts) exchanges(m *mechaStats, now uint32) int64 {
	if m.exchanges == 0 {
		return 0
	}
	return min(l.fade(m.exchanges, m.hour, now), maxExchanges*relay.LearnedUnit)
}

// pageChanges are a page of changes, by word.
type pageChanges struct {
	mechas []relay.Learned
	in     map[uint32]bool    // the numbers of the Mechas
	added  map[uint32][]count // by the word's hash, in the order of the Mechas
	gone   map[uint32]int     // how many counts of these Mechas each word has now
}

func newChanges(l *Counts, page []relay.Learned) *pageChanges {
	p := &pageChanges{in: map[uint32]bool{}, added: map[uint32][]count{}, gone: map[uint32]int{}}
	p.mechas = slices.DeleteFunc(slices.Clone(page), func(m relay.Learned) bool {
		return m.Mecha < 0 || m.Mecha > search.MaxMecha
	})
	slices.SortFunc(p.mechas, func(a, b relay.Learned) int {
		return cmp.Or(cmp.Compare(a.Mecha, b.Mecha), cmp.Compare(b.Position, a.Position))
	})
	// The source has each Mecha once. Should a page have one twice, the last change counts.
	p.mechas = slices.CompactFunc(p.mechas, func(a, b relay.Learned) bool { return a.Mecha == b.Mecha })
	for i := range p.mechas {
		m := &p.mechas[i]
		number := uint32(m.Mecha)
		p.in[number] = true
		for hash, c := range l.countsOf(m) {
			p.added[hash] = append(p.added[hash], c)
		}
		if int(number) < len(l.wordsOf) {
			for _, hash := range l.wordsOf[number] {
				p.gone[hash]++
			}
		}
	}
	return p
}

// countsOf returns the counts of a Mecha by the hashes of the words. Of words with the same
// hash the first one in the order of ahead counts: their sum could exceed the limits of one
// sender and one crew for a word.
func (l *Counts) countsOf(m *relay.Learned) map[uint32]count {
	words, now := m.Words, uint32(0)
	for i := range words {
		now = max(now, hourOf(words[i].At))
	}
	if len(words) > l.limit { // else their order does not matter
		words = slices.Clone(words)
		slices.SortFunc(words, func(a, b relay.LearnedWord) int { return l.ahead(&a, &b, now) })
		words = words[:l.limit]
	}
	best := make(map[uint32]*relay.LearnedWord, len(words))
	for i := range words {
		w, hash := &words[i], search.HashTerm(words[i].Word)
		if other := best[hash]; other == nil || l.ahead(w, other, now) < 0 {
			best[hash] = w
		}
	}
	counts := make(map[uint32]count, len(best))
	for hash, w := range best {
		crews := uint8(min(max(w.Crews, 0), math.MaxUint8))
		counts[hash] = count{mecha: uint32(m.Mecha), weight: weightOf(w.Weight), hour: hourOf(w.At), crews: crews}
	}
	return counts
}

// ahead compares two words of a Mecha by their value as of an hour, the better one first:
// words that several crews have reported come before words of one crew alone.
func (l *Counts) ahead(a, b *relay.LearnedWord, now uint32) int {
	several := func(w *relay.LearnedWord) int { return min(w.Crews, 2) }
	left := func(w *relay.LearnedWord) float64 {
		return trustIn(w.Crews) * float64(l.fade(weightOf(w.Weight), hourOf(w.At), now))
	}
	return cmp.Or(cmp.Compare(several(b), several(a)), cmp.Compare(left(b), left(a)), strings.Compare(a.Word, b.Word))
}

// fewChanges is how many changes are made in place in a word's list. With more, a new
// list takes less time.
const fewChanges = 2

// mergeLong makes new lists of the words with many changes, while searches continue.
func (p *pageChanges) mergeLong(l *Counts) map[uint32][]count {
	long := map[uint32][]count{}
	for hash, added := range p.added {
		old := l.words[hash]
		if len(added)+p.gone[hash] <= fewChanges {
			continue
		}
		merged := make([]count, 0, len(old)+len(added)-p.gone[hash])
		for _, c := range old {
			if p.in[c.mecha] {
				continue
			}
			for len(added) > 0 && added[0].mecha < c.mecha {
				merged, added = append(merged, added[0]), added[1:]
			}
			merged = append(merged, c)
		}
		long[hash] = append(merged, added...)
	}
	return long
}

// apply makes the changes. The caller must hold the lock.
func (p *pageChanges) apply(l *Counts, long map[uint32][]count) {
	for i := range p.mechas {
		m := &p.mechas[i]
		n := int(m.Mecha)
		if n >= len(l.mechas) {
			l.mechas = append(l.mechas, make([]mechaStats, n+1-len(l.mechas))...)
			l.wordsOf = append(l.wordsOf, make([][]uint32, n+1-len(l.wordsOf))...)
		}
		for _, hash := range l.wordsOf[n] {
			if _, merged := long[hash]; !merged {
				l.remove(hash, uint32(n))
			}
		}
		l.counts -= len(l.wordsOf[n])
		l.mechas[n], l.wordsOf[n] = mechaStats{exchanges: weightOf(m.Exchanges), hour: hourOf(m.At)}, nil
	}
	for hash, added := range p.added {
		list, merged := long[hash]
		if merged {
			l.words[hash] = list
		}
		for _, c := range added {
			if !merged {
				l.insert(hash, c)
			}
			m := &l.mechas[c.mecha]
			m.hour, m.crews = max(m.hour, c.hour), max(m.crews, c.crews)
			l.wordsOf[c.mecha] = append(l.wordsOf[c.mecha], hash)
		}
		l.counts += len(added)
	}
}

func (l *Counts) find(list []count, mecha uint32) (int, bool) {
	return slices.BinarySearchFunc(list, mecha, func(c count, m uint32) int { return cmp.Compare(c.mecha, m) })
}

func (l *Counts) insert(hash uint32, c count) {
	list := l.words[hash]
	i, found := l.find(list, c.mecha)
	if !found {
		list = slices.Insert(list, i, c)
	}
	list[i] = c
	l.words[hash] = list
}

func (l *Counts) remove(hash, mecha uint32) {
	list := l.words[hash]
	i, found := l.find(list, mecha)
	switch {
	case !found:
	case len(list) == 1:
		delete(l.words, hash)
	default:
		l.words[hash] = slices.Delete(list, i, i+1)
	}
}
