package search

import "strings"

// This file is the whole of mapping and ranking: what of a profile is indexed
// how strongly, what a query's words weigh, and how a score comes about. A
// person can read it and change it; the code elsewhere only carries it out.
// PROTOCOL §5 has the promise to users: exact address or name first; then text
// (name > tags > description > skills > examples > details), typos forgiven
// for words nobody uses, a prefix on the last word of a short query; presence
// only nudges.

// RankingVersion is shown with every result. Raise it with any change here
// that alters an order.
const RankingVersion = "2"

// indexVersion stamps the folder. Raise it when what is stored changes: the
// analysis (tokenize, the word lists), the weights marked "stored", the terms
// (textKey), the meta, the forward record. An index with another stamp is made anew from the store.
const indexVersion = "3"

// A field is where in a profile a word stands.
type field uint8

// The fields in the order in which a match in them counts.
const (
	fieldName field = iota
	fieldTag
	fieldDescription
	fieldSkillName
	fieldSkill
	fieldExample
	fieldDetails
	fields
)

// fieldNames are the words for Matched.Fields and Highlight.Field.
var fieldNames = [fields]string{"name", "tags", "description", "skills.name", "skills.description", "examples", "details"}

// storedWeight is how often a word counts in the one combined text that finds
// and roughly orders the candidates. Whole numbers, doubled: details weigh ½.
// Stored.
var storedWeight = [fields]int{6, 4, 4, 2, 2, 2, 1}

// fineWeight and fineLength are the BM25F weights and length normalisations
// (0: length does not matter, 1: fully) by which the candidates are judged.
var (
	fineWeight = [fields]float64{3, 2, 2.5, 1.5, 1, 1.5, 0.5}
	fineLength = [fields]float64{0.3, 0.3, 0.5, 0.5, 0.5, 0.5, 0.75}
)

// A word counts no more than so often in a field. What stands there oftener
// makes the field longer and nothing else: repetition costs. Stored, for the
// combined text.
const maxCount = 3

// What the words of a query weigh.
const (
	requestWeight   = 0.5 // a word of asking, not of the matter: requestWords
	correctedWeight = 0.5 // what a word nobody uses was taken for
	joinedWeight    = 0.5 // the whole of a camelCase word, beside its parts
	prefixWeight    = 0.4 // a word that begins like the last one of a short query
)

// How a candidate's score comes about (rank.go):
//
//	fine  = Σ word · idf · BM25F  +  neighbours  +  name        of a text
//	text  = ½ fine(whole query) + ½ fine(its best sentence)
//	raw   = ⅔ text + ⅓ BM25 of the combined text  +  name bonus
//
// Requests to agents are often several sentences of which one is about the
// agent sought, hence the best sentence. Measured on ten public sets, see
// relevance_test.go.
const (
	coarseK1, coarseB = 2.0, 0.75
	fineK1            = 2.0

	sentenceShare = 0.5  // of the best sentence in the text score
	coarseShare   = 0.34 // of the combined text's BM25 in the whole

	pairWeight      = 0.9 // two neighbours of the query are neighbours in the profile
	loosePairWeight = 0.3 // the same, in the other order or with a word left out
	nameWeight      = 2.0 // cosine of the query and the best of names and skill names
	coverageWeight  = 1.0 // times the share of the query's weight that matched

	// otherNameWord is the idf, as a share of the greatest possible, that a
	// word of a name has which the query has not: looking each up would cost
	// more than the rest of the search.
	otherNameWord = 0.7
)

// Names are looked at as a whole for queries that may be one.
const (
	nameQueryWords   = 6    // a longer query is no name
	shortQueryWords  = 6    // a longer query's last word is finished
	namePrefixBonus  = 0.5  // the query begins a name; × how much of it
	nearNameShare    = 0.98 // of the best score, at least, for a name but for one letter
	nameDiceBonus    = 0.4  // × the share of common trigrams
	nameBonusMinimum = 0.1  // less is no match
	typoNameLength   = 5    // letters of a name that may be misspelled
)

// Presence nudges: an online Mecha's score is multiplied by 1 + onlineNudge.
const onlineNudge = 0.02

// A score is brought to 0–1 and into its tier: an exact name's (the whole of
// the query, of a Mecha) is above an exact skill's (skills.go), and that above
// whatever a text is worth, presence included: words can be repeated, and no
// weight of a skill's name withstands every way to do that. An exact address
// scores 1. Within a tier the order is that of the scores.
const (
	nameTier, nameSpan   = 0.98, 0.01
	skillTier, skillSpan = 0.95, 0.02
	textSpan             = 0.93 // × (1 + onlineNudge) is less than skillTier

	maxSkillWords = 32 // a longer name, or query, is no skill's name
)

// Spelling (vocabulary.go): only words that nobody uses are corrected.
const (
	oneEditLength     = 4  // letters from which one edit is forgiven
	twoEditsLength    = 8  // and two, with the first letter right
	corrections       = 2  // nearest words tried for each
	maxCorrectedWords = 16 // of a query
)

// Bounds.
const (
	maxQueryChars  = 2000
	maxQueryWords  = 64  // unique words used (PROTOCOL §5)
	maxTerms       = 128 // with corrections, prefixes and wholes
	maxCandidates  = 200 // judged finely; the rest keep the rough order
	maxPrefixWords = 8   // that the last word of a query may begin
	maxHumps       = 6   // parts of a camelCase word that is also taken whole
	maxTokenBytes  = 64  // of a word; the rest is cut off
	maxFieldTokens = 4096
)

// stopWords are neither indexed nor searched.
var stopWords = wordSet(`
a an the and or but if then else so than too very just also
i me my mine myself we us our ours ourselves you your yours yourself yourselves
he him his himself she her hers herself it its itself they them their theirs themselves
what which who whom whose this that these those there here when where why how
am is are was were be been being have has had having do does did doing done
will would shall should can could may might must ought cannot
don doesn didn isn aren wasn weren hasn haven hadn won wouldn shan shouldn couldn mustn needn ve ll re
of at by for with about against between into through during before after above below to from up down in out on off over under
again further once all any both each few more most other some such no nor not only own same as because until while
`)

// requestWords belong to asking, whatever is asked for. They weigh less and
// are never taken for misspelled.
var requestWords = stemSet(`
help helps helping please need needs want wants wanted like looking look looks find finding finds
show give gives tell let get getting know use using used uses usage
provide provides providing provided suggest suggestion suggestions recommend recommendation recommendations
assist assistance able possible possibly tool tools app plugin api service chatbot bot agent
make making create creating explain perform fetch retrieve return obtain
information info detail details specific various different several relevant certain particular
interested interest wondering wonder trying try hi hello hey thanks thank appreciate great good best better really
way ways thing things something anything someone anyone kind sort type types
additionally moreover furthermore ensure include including included based related regarding
question questions answer access quick quickly easy easily
planning organizing working come going go day today
user users input output data given value parameter
currently recent recently latest new first second lastly finally firstly secondly
one two three sure exactly actually detailed comprehensive located
people person friend friends family company business
enjoy love exciting fun amazing wonderful surprise special perfect appreciated kindly
upcoming ideas idea learn learning understand overview aspects involve involves potential
`)

func wordSet(list string) map[string]bool {
	set := map[string]bool{}
	for _, w := range strings.Fields(list) {
		set[w] = true
	}
	return set
}

func stemSet(list string) map[string]bool {
	set := map[string]bool{}
	for w := range wordSet(list) {
		set[stem(w)] = true
	}
	return set
}
