package search

import "strings"

// This file has all constants and word lists of the ranking: the weights of a profile's
// fields and of a query's words, and the parts of a score. PROTOCOL §5 explains the
// ranking to users: exact addresses and names come first; then text counts by its field
// (name > tags > description > skills > examples > details); words that no profile has
// are corrected; the last word of a short query is completed; presence changes a score
// only a little.

// RankingVersion is part of every result. Raise it with any change that alters
// the order of hits.
const RankingVersion = "4"

// indexVersion is stored in the index. Raise it with any change to the stored
// data: the analysis (tokenize, the word lists), the weights marked "stored", the
// terms (textKey), the metadata, the record. An index of another version is rebuilt.
const indexVersion = "3"

// A field is a part of a profile.
type field uint8

// The fields, the heaviest first (PROTOCOL §5). Matched.Fields lists them in this order.
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
var fieldNames = [fields]string{"name", "tags", "description", "skills.name", "skills.description",
	"examples", "details"}

// storedWeight is the frequency with which a word of a field counts in the
// combined text, by which the coarse scores are computed. The numbers are
// doubled, since they must be whole and details weigh ½. Stored.
var storedWeight = [fields]int{6, 4, 4, 2, 2, 2, 1}

// fineWeight and fineLength are the BM25F weights and length normalisations (from
// 0, length does not matter, to 1) of the candidates' fine scores.
var (
	fineWeight = [fields]float64{3, 2, 2.5, 1.5, 1, 1.5, 0.5}
	fineLength = [fields]float64{0.3, 0.3, 0.5, 0.5, 0.5, 0.5, 0.75}
)

// A word scores at most maxCount times per field. Further repetitions only
// lengthen the field, which lowers the score. Stored, for the combined text.
const maxCount = 3

// The weights of a query's words; other words weigh 1.
const (
	requestWeight   = 0.5 // one of requestWords
	correctedWeight = 0.5 // a correction of an unknown word
	joinedWeight    = 0.5 // a whole camelCase word, in addition to its parts
	prefixWeight    = 0.4 // a completion of the last word of a short query
)

// The score of a candidate (rerank.go):
//
//	fine  = (Σ word weight · idf · BM25F  +  pairs  +  name) · (1 + coverage)
//	text  = ½ fine(whole query) + ½ fine(its best sentence)
//	raw   = ⅔ text + ⅓ BM25 of the combined text  +  name bonus  +  the part of a Boost
//
// The best sentence counts because a request to an agent often has several sentences, of
// which one names the task. The constants were measured on ten public sets, see
// relevance_test.go.
const (
	coarseK1, coarseB = 2.0, 0.75
	fineK1            = 2.0

	sentenceShare = 0.5  // share of the best sentence in the text score
	coarseShare   = 0.34 // share of the combined text's BM25 in the raw score

	pairWeight      = 0.9 // two neighbours in the query are neighbours in the profile
	loosePairWeight = 0.3 // the same, in the other order or with a word left out
	nameWeight      = 2.0 // × the cosine of the query and the best of the names and skill names
	coverageWeight  = 1.0 // × the share of the query's weight that matched

	// otherNameWord is the idf, as a share of the greatest possible one, that is
	// assumed for a name's words that are not in the query: looking up each would
	// take longer than the rest of the search.
	otherNameWord = 0.7
)

// Queries that may be names are compared with whole names.
const (
	nameQueryWords   = 6    // a query of more words is not a name
	shortQueryWords  = 6    // the last word of a query of more words is not completed
	namePrefixBonus  = 0.5  // × the query's share of the name, if the name begins with the query
	nearNameShare    = 0.98 // minimum share of the best score for a name one edit away
	nameDiceBonus    = 0.4  // × the Dice coefficient of the trigrams
	nameBonusMinimum = 0.1  // a lower bonus counts as none
	typoNameLength   = 5    // minimum letters of a name that may be misspelled
)

// maxBoosted is how many Mechas become candidates by a Boost.
const maxBoosted = 30

// The score of an online Mecha is multiplied by 1 + onlineNudge.
const onlineNudge = 0.02

// A score is mapped to 0–1 and to its tier. The Mechas whose name is the query come above
// those with a skill whose name is the query (skills.go), and those above every other
// match, presence included: no weight of a skill's name would withstand all the ways to
// repeat words. A Mecha whose address is the query scores 1. Scores decide the order
// within a tier.
const (
	nameTier, nameSpan   = 0.98, 0.01
	skillTier, skillSpan = 0.95, 0.02
	textSpan             = 0.93 // × (1 + onlineNudge) is less than skillTier

	maxSkillWords = 32 // a name, or query, of more words is not compared as a skill's name
)

// Only words that no visible profile has are corrected (vocabulary.go).
const (
	oneEditLength     = 4  // minimum letters of a word that is corrected by one edit
	twoEditsLength    = 8  // and by two edits, if the first letter is the same
	maxCorrections    = 2  // of a word
	maxCorrectedWords = 16 // of a query
)

// Limits.
const (
	maxQueryChars  = 2000
	maxQueryWords  = 64  // different words of a query that are used (PROTOCOL §5)
	maxTerms       = 128 // of a query, with corrections, completions and joined words
	maxCandidates  = 200 // documents that get a fine score; the others stay in coarse order
	maxPrefixWords = 8   // completions of a query's last word
	maxHumps       = 6   // of a camelCase word that becomes a joined word too
	maxTokenBytes  = 64  // of a word; the rest of the word is ignored
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
of at by for with about against between into through during before after
above below to from up down in out on off over under
again further once all any both each few more most other some such no nor not only own same as because until while
`)

// requestWords are words of a request that do not name its subject. They weigh less than
// others and are not corrected.
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
