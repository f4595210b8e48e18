package learned

import "relay/search"

// The learned part (learner.go) of a Mecha's raw score, from c completed exchanges for each word
// of the query (PROTOCOL §5, Learning):
//
//	learned = 21 · Σ trust · rarity · c/(c+1) · √(c/f)  ·  √coverage  ·  e/(e+21)
//
// c and e, all exchanges of the Mecha, have faded. f is the sum of c over all Mechas. The rarity
// is the rarity of the word among the exchanges of all other Mechas, ln(1 + (n−o+½)/(o+3½)), if
// the word is in o of their n exchanges; the documents are counted in n. The coverage is the
// share of the query's words that the Mecha has, by their idf among the Mechas. So more
// exchanges of a Mecha never lower its own learned part. All is in absolute units, as the idf of
// the text: relative to the best of each query, a single exchange would be worth as much as a
// hundred.
const (
	fullWeight   = 21.0
	halfWeight   = 21.0 // e/(e+halfWeight): the weight follows the evidence
	ownExchanges = 3.0  // exchanges that the rarity counts for the Mecha itself, however many it has

	// The trust in a word is 1 − doubt/k if k crews have reported it, from two on, and
	// oneCrewTrust in a word that a single crew has reported. Unless trustedCrews crews (or all
	// of the directory, if it has fewer) have reported some word of the Mecha, the words of a
	// single crew lift it at most half of the way to the next better text: one crew alone cannot
	// lift a Mecha above others.
	doubt        = 0.8
	oneCrewTrust = 0.6
	trustedCrews = search.CountedCrews

	// A word alone finds a Mecha if so many crews have reported it (or all of the
	// directory): else anybody could learn whether a single sender has used a word.
	findingCrews = 2

	// The learned part lifts nothing above this share of the raw score of a name that is
	// nearly the query, or begins with it, and that the text ranks higher.
	belowName = 0.999

	maxExchanges = 50       // maximum of one Mecha in n
	maxWork      = 15_000   // counts that a search reads, of the rarest words first, since the others say little
	maxCounts    = 10 << 20 // counts in memory, of 20 bytes
)
