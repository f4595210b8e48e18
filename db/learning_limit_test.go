package db_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"relay/db/relay"
)

// One sender counts three times, one crew five times, however many keys it has.
func TestNoSenderAndNoCrewDecidesAlone(t *testing.T) {
	s := mustTaught(t)
	for range 10 {
		s.exchange("mallory^evil", "bad^evil2", "completed", "book")
	}
	s.wantLearned("bad^evil2", map[string]float64{"book": relay.SenderShare})
	for i := range 50 {
		from := relay.Address(fmt.Sprintf("m%d^evil", i))
		s.exchange(from, "bad^evil2", "completed", "book")
		s.exchange(from, "bad^evil2", "completed", "book")
	}
	s.wantLearned("bad^evil2", map[string]float64{"book": relay.CrewShare})
	if l := s.learned("bad^evil2"); l.Words[0].Crews != 1 || l.Exchanges > relay.CrewShare {
		t.Errorf("learned %+v", l)
	}
	// A flood of a crew does not drive out what others have given.
	for i := range 20 {
		s.exchange(relay.Address(fmt.Sprintf("honest%d^crew%d", i%10, i%5)), "good^fair", "completed", "book")
	}
	for i := range 3 * 35 { // each of them counts for more than an honest one
		s.exchange(relay.Address(fmt.Sprintf("m%d^evil", i/3)), "good^fair", "completed", "book")
	}
	s.wantLearned("good^fair", map[string]float64{"book": 20 + relay.CrewShare})
	if l := s.learned("good^fair"); l.Words[0].Crews != 6 {
		t.Errorf("learned %+v", l)
	}
	// A ring: each asks the next one. Each gets what the crew can give it, and no more.
	for range 4 {
		for i := range 5 {
			s.exchange(relay.Address(fmt.Sprintf("ring%d^ring", i)), relay.Address(fmt.Sprintf("ring%d^ring", (i+1)%5)), "completed", "book")
		}
	}
	s.wantLearned("ring0^ring", map[string]float64{"book": relay.SenderShare})
}

// A word counts 32 senders for a Mecha. With more of them, no exchange lowers the weight: a further sender
// counts only when one of the 32 has faded to less than an exchange.
func TestManySendersLowerNoWeight(t *testing.T) {
	const senders, counted = 40, 32
	s := mustTaught(t)
	weight := func() float64 { return s.learned("carol^travel").Words[0].Weight }
	from := func(i int) relay.Address { return relay.Address(fmt.Sprintf("s%d^crew%d", i, i)) }
	last := 0.0
	for n := range senders * relay.SenderShare {
		s.exchange(from(n%senders), "carol^travel", "completed", "book")
		now := weight()
		if now < last {
			t.Fatalf("exchange %d lowered the weight from %v to %v", n, last, now)
		}
		last = now
	}
	if last != counted*relay.SenderShare {
		t.Errorf("%d senders with %d exchanges each weigh %v", senders, relay.SenderShare, last)
	}
	s.minutes.Add(2 * 90 * 24 * 60) // two half-lives
	s.exchange(from(senders), "carol^travel", "completed", "book")
	if now, want := weight(), (counted-1)*relay.SenderShare/4.+1; math.Abs(now-want) > .05 {
		t.Errorf("a new sender among faded ones: %v, want %v", now, want)
	}
}

// A count fades to a half in its half-life, with no write; and what a sender has given fades
// before it counts again.
func TestCountsFade(t *testing.T) {
	const day = 24 * 60 // minutes
	s := mustTaught(t)
	for range 3 {
		s.exchange("alice^demo", "carol^travel", "completed", "book")
	}
	s.minutes.Add(90 * day)
	s.exchange("alice^demo", "carol^travel", "completed", "book")
	s.wantLearned("carol^travel", map[string]float64{"book": 2.5})
	s.exchange("bob^other", "carol^travel", "completed", "book")
	s.minutes.Add(180 * day)
	s.exchange("bob^other", "carol^travel", "completed", "book")
	s.wantLearned("carol^travel", map[string]float64{"book": 2.5/4 + 1.25})
	if l := s.learned("carol^travel"); math.Abs(l.Exchanges-1.875) > .002 || l.Words[0].Crews != 2 {
		t.Errorf("learned %+v", l)
	}
}

// Beyond 2,000 words, those with the least weight go.
func TestAMechaHasABoundedNumberOfWords(t *testing.T) {
	s := mustTaught(t)
	s.exchange("alice^demo", "carol^travel", "completed", "book")
	s.exchange("bob^other", "carol^travel", "completed", "book")
	for n := 0; n < relay.MaxLearnedWords+100; n += relay.MaxSearchWords {
		var words []string
		for i := range relay.MaxSearchWords {
			words = append(words, fmt.Sprintf("word%05d", n+i))
		}
		s.exchange("alice^demo", "carol^travel", "completed", words...)
		if l := s.learned("carol^travel"); len(l.Words) > relay.MaxLearnedWords {
			t.Fatalf("%d words are kept", len(l.Words))
		}
	}
	l := s.learned("carol^travel")
	if len(l.Words) < relay.MaxLearnedWords*9/10 || !slices.ContainsFunc(l.Words, func(w relay.LearnedWord) bool { return w.Word == "book" && w.Weight == 2 }) {
		t.Errorf("%d words are kept; the one with the most weight must be among them", len(l.Words))
	}
	if n := s.number("SELECT words - (SELECT sum(words) FROM learned) FROM learner"); n != 0 {
		t.Errorf("the count of words is off by %d", n)
	}
}

// A flood of words from one crew drops no word that several crews have reported, nor what
// another crew alone has.
func TestAFloodOfWordsDropsNoOthers(t *testing.T) {
	s := mustTaught(t)
	for _, from := range []relay.Address{"alice^demo", "bob^other"} {
		s.exchange(from, "carol^travel", "completed", "book", "flight")
	}
	s.exchange("erin^third", "carol^travel", "completed", "hotel")
	for n := 0; n < relay.MaxLearnedWords+300; n += relay.MaxSearchWords {
		var words []string
		for i := range relay.MaxSearchWords {
			words = append(words, fmt.Sprintf("word%05d", n+i))
		}
		for range relay.SenderShare { // each of them has more weight than the honest ones
			s.exchange("mallory^evil", "carol^travel", "completed", words...)
		}
	}
	l := s.learned("carol^travel")
	for _, word := range []string{"book", "flight", "hotel"} {
		if !slices.ContainsFunc(l.Words, func(w relay.LearnedWord) bool { return w.Word == word }) {
			t.Errorf("the word %q was dropped; %d words are kept", word, len(l.Words))
		}
	}
}
