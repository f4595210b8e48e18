package relay

import "time"

// MaxLearnedWords is how many words the store keeps of one Mecha, and MaxSearchWords how
// many words of one search it keeps (PROTOCOL §5, Learning and Search).
const (
	MaxLearnedWords = 2000
	MaxSearchWords  = 64
)

// A LearnedWord is what completed exchanges show about one word and one Mecha.
type LearnedWord struct {
	Word   string    // as analysed by package search
	Weight float64   // completed exchanges, each faded with the half-life, as of At; never below 0
	At     time.Time // of the last exchange that was counted, to the hour
	// Crews says from how many crews the exchanges came. Beyond CrewShare a crew adds
	// nothing, so with one crew Weight is at most that.
	Crews int
}

// Learned is what discovery has learned about one Mecha: at most MaxLearnedWords words.
type Learned struct {
	Mecha     MechaNumber
	Position  Position // of the last change; it ascends, so that a reader can follow
	Exchanges float64  // the weight of the exchanges, as of At
	At        time.Time
	Words     []LearnedWord // in the order of the words; none if all were forgotten
}

// SenderShare and CrewShare are the most that one sender and one crew can add to the weight
// of a word and a Mecha, in exchanges (PROTOCOL §5, Learning).
const (
	SenderShare = 3
	CrewShare   = 5
)

// DefaultHalfLife is the time in which a count fades to one half, and MinHalfLife the
// shortest such time (PROTOCOL §5, Learning).
const (
	DefaultHalfLife = 90 * 24 * time.Hour
	MinHalfLife     = time.Hour
)

// LearnedUnit is one exchange, in the fixed-point numbers of the counts.
const LearnedUnit = 1 << 10

// CountExchanges is the write that counts ended exchanges, in rounds: about Limit of the exchanges
// that waited when the present round began, one Mecha after the other. Without a round, it begins
// one. A server makes such writes soon after exchanges have ended.
type CountExchanges struct {
	At time.Time
	// decided beforehand: the time in which the counts fade to one half. 0 means that nothing is learned, and
	// the exchanges are removed uncounted
	HalfLife time.Duration
	Limit    int
}

func (c *CountExchanges) When() time.Time { return c.At }

func (c *CountExchanges) setTime(at time.Time) { c.At = at }

func (c *CountExchanges) Size() int { return c.Limit << 10 }

func (c *CountExchanges) kind() byte { return kindCountExchanges }

func (c *CountExchanges) fields(f *form) {
	f.time(&c.At)
	integer(f, &c.HalfLife)
	integer(f, &c.Limit)
}

// ForgetLearned is the write that removes what completed exchanges have taught about a
// Mecha (PROTOCOL §5, Learning).
type ForgetLearned struct {
	At      time.Time
	Address Address
}

func (l *ForgetLearned) When() time.Time { return l.At }

func (l *ForgetLearned) setTime(at time.Time) { l.At = at }

func (l *ForgetLearned) Size() int { return 64 << 10 }

func (l *ForgetLearned) kind() byte { return kindForgetLearned }

func (l *ForgetLearned) fields(f *form) {
	f.time(&l.At)
	text(f, &l.Address)
}
