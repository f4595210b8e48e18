package relay

import "time"

// PruneMessages is the write that removes messages (PROTOCOL §8), with their payloads,
// receipts and places in mailboxes. It examines the next Limit messages of an order,
// between two places in it. Without ExpiredBefore that is the commit order. With it, the
// write examines only expired messages, in the order of their ExpiresAt.
//
// A message stays if it is younger than 24 hours and has an Idempotency-Key, if its latest
// receipt is very recent, or if it is due to expire, which comes first.
type PruneMessages struct {
	At            time.Time
	After         Position  // with ExpiredBefore: among the messages that expired at ExpiredAfter
	Before        Position  // exclusive; with ExpiredBefore it does not count
	ExpiredAfter  time.Time // the ExpiresAt of the message at After
	ExpiredBefore time.Time // exclusive; zero: the write goes by the commit order
	Limit         int       // messages to examine; the accepting machine chooses it by its speed
}

func (p *PruneMessages) When() time.Time { return p.At }

func (p *PruneMessages) setTime(at time.Time) { p.At = at }

func (p *PruneMessages) Size() int { return 0 }

func (p *PruneMessages) kind() byte { return kindPruneMessages }

func (p *PruneMessages) fields(f *form) {
	f.time(&p.At)
	integer(f, &p.After)
	integer(f, &p.Before)
	f.time(&p.ExpiredAfter)
	f.time(&p.ExpiredBefore)
	integer(f, &p.Limit)
}

// Pruned is the outcome of a PruneMessages.
type Pruned struct {
	Messages int   // how many were removed
	Bytes    int64 // of their payloads
	Kept     int   // how many were examined and must stay for now
	// More says that the write stopped early. The next one continues with After and
	// ExpiredAfter.
	More         bool
	After        Position
	ExpiredAfter time.Time
}

// PruneUnused is the write that removes what removed messages leave behind: the parties
// of conversations in which nobody has sent since, words that no message has, ended keys
// and removed Mechas to which no message refers, and old nonces. It examines a part of
// each table, in the order of the rows' numbers.
type PruneUnused struct {
	At time.Time
	// conversations whose last message was removed before this time end; likewise keys and Mechas, a day later at the
	// earliest
	EmptySince time.Time
	Words      int64 // words after this number are examined
	Keys       int64 // likewise for keys
	Mechas     int64 // likewise for Mechas
	Limit      int   // rows of each table to examine
}

func (p *PruneUnused) When() time.Time { return p.At }

func (p *PruneUnused) setTime(at time.Time) { p.At = at }

func (p *PruneUnused) Size() int { return 0 }

func (p *PruneUnused) kind() byte { return kindPruneUnused }

func (p *PruneUnused) fields(f *form) {
	f.time(&p.At)
	f.time(&p.EmptySince)
	f.int64(&p.Words)
	f.int64(&p.Keys)
	f.int64(&p.Mechas)
	integer(f, &p.Limit)
}

// PrunedUnused is the outcome of a PruneUnused.
type PrunedUnused struct {
	More                bool  // there are rows that were not examined
	Words, Keys, Mechas int64 // where the next write continues
}
