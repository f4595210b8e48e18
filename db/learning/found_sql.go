package learning

import (
	"context"
	"encoding/binary"
	"slices"
	"strings"
	"time"

	"relay/db/internal/answers"
	"relay/db/internal/engine"
	"relay/db/internal/names"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// found is what the store keeps of a search for the messages that name it: its Mecha, the
// words of the query in alphabetical order, and the listed Mechas.
type found struct {
	of     relay.MechaNumber
	until  time.Time // from then on no message can name the search
	words  []string
	listed []relay.MechaNumber
}

// size returns roughly the room of a search in the cache.
func (f *found) size() int {
	return len(relay.JoinWords(f.words)) + 8*len(f.listed) + 128 + names.PairOverhead
}

var searchWords = answers.Text{Size: "coalesce(octet_length(words), 0)",
	Empty: "UPDATE search SET words = NULL, listed = NULL WHERE position = ?", Stays: relay.FoundLife - relay.SearchLife}

// Asked caches a search for the messages that name it, if discovery can learn from it.
func (l *Learning) Asked(s *relay.SaveSearch) {
	if l.halfLife == 0 || len(s.Listed) == 0 || len(s.Words) > relay.MaxSearchWords {
		s.Words, s.Listed = nil, nil
	}
	if len(s.Words) > 0 {
		f := &found{of: s.Mecha, until: foundUntil(s.At), words: s.Words, listed: s.Listed}
		l.found.Put(s.ID, f, f.size())
	}
}

// Kept returns the words of a search and the listed Mechas, and has them removed from the file later.
func (l *Learning) Kept(s *relay.SaveSearch) (words, listed any) {
	if len(s.Words) == 0 {
		return nil, nil
	}
	l.searchWords.Expect(s.At.Add(relay.SearchLife).UnixMilli())
	return relay.JoinWords(s.Words), encodeListed(s.Listed)
}

// Sought returns the words of the search that a message names: nil if the search is not the
// sender's, did not list the recipient, or is older than relay.FoundLife. It also returns
// nil after a fault, because a message must not fail for that.
func (l *Learning) Sought(m *relay.SendMessage) []string {
	if m.SearchID == "" || m.To.IsCrew() || l.halfLife == 0 {
		return nil
	}
	sender := l.w.MechaOf(m.Key)
	s, _ := l.found.Find(m.SearchID)
	to, known := l.w.Mechas.ID.Find(m.To)
	if s == nil || !known || sender <= 0 {
		err := l.w.As(sender).Point(context.Background(), func(x *engine.Rx) (err error) {
			if s == nil {
				s, err = findSearch(x, m.SearchID)
			}
			if err == nil {
				to, err = x.Mechas.Find(x.C, m.To)
			}
			if err == nil && sender <= 0 { // the key was not used lately
				_, err = x.C.Row(func(r *sqlite.Rows) { sender = relay.MechaNumber(r.Int(0)) },
					"SELECT mecha FROM mecha_key WHERE id = ?", int64(m.Key))
			}
			return err
		})
		if err != nil || s == nil {
			return nil
		}
		l.found.Put(m.SearchID, s, s.size())
	}
	if s.of != sender || !m.At.Before(s.until) || !slices.Contains(s.listed, relay.MechaNumber(to)) {
		return nil
	}
	return s.words
}

// findSearch reads what is kept of a search, or returns nil.
func findSearch(x *engine.Rx, id relay.SearchID) (s *found, err error) {
	_, err = x.C.Row(func(r *sqlite.Rows) {
		if r.Null(2) || r.Text(2) == "" {
			return
		}
		s = &found{of: relay.MechaNumber(r.Int(0)), until: foundUntil(relay.UnixMilli(r.Int(1)).Add(-relay.SearchLife)),
			words: strings.Split(r.Text(2), "\n"), listed: decodeListed(r.Blob(3))}
	}, "SELECT mecha, expires_at, words, listed FROM search WHERE id = ?", string(id))
	return s, err
}

// foundUntil returns until when messages can name a search.
func foundUntil(searched time.Time) time.Time { return searched.Add(relay.FoundLife) }

func encodeListed(all []relay.MechaNumber) (b []byte) {
	for _, id := range all {
		b = binary.AppendUvarint(b, uint64(id))
	}
	return b
}

func decodeListed(b []byte) (all []relay.MechaNumber) {
	for len(b) > 0 {
		n, size := binary.Uvarint(b)
		if size <= 0 {
			return nil // the row is damaged: the search has listed nobody
		}
		all, b = append(all, relay.MechaNumber(n)), b[size:]
	}
	return all
}
