package learning

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// A share is what one sender has added to the weight of a word and a Mecha. Crew and sender
// are keyed hashes, which differ from word to word and from Mecha to Mecha, so that rows do
// not show that they come from one sender.
type share struct {
	crew, sender uint32
	weight       int64 // as of hour, in 1/relay.LearnedUnit exchanges; at most relay.SenderShare exchanges
	hour         int64 // since 1970, of the sender's last exchange
}

// shares are the shares of one word and one Mecha, in the order in which their senders came.
type shares []share

// A crew has room for as many senders as can reach the crew's maximum with an exchange each. Another
// sender replaces the least of them, so the senders of one crew cannot displace the senders of others. A
// word has room for sharesPerWord senders. Another sender replaces the least of them only if that one is
// worth less than an exchange by now.
const (
	sharesPerCrew = relay.CrewShare
	sharesPerWord = 32
	bytesPerShare = 14 // roughly, in the stored form
)

// hourOf returns the hour of a time since 1970. That is exact enough for a count that fades
// over months, and does not show which words came in the same message.
func hourOf(t time.Time) int64 { return max(t.Unix(), 0) / 3600 }

func timeOfHour(hour int64) time.Time { return time.Unix(hour*3600, 0).UTC() }

// count adds an exchange to the share at i. changed is by how much the weight has grown, as of its hour.
func (all shares) count(i int, hour int64, halfLife time.Duration) (_ shares, changed int64) {
	crew := all[i].crew
	changed = -all.ofCrew(crew, hour, halfLife)
	all[i].fade(hour, halfLife)
	all[i].weight = min(all[i].weight+relay.LearnedUnit, fullShare)
	newest := all[i].sender
	if least := all.least(newest, sharesPerCrew, hour, halfLife, func(s *share) bool {
		return s.crew == crew
	}); least >= 0 {
		all = slices.Delete(all, least, least+1)
	}
	changed += all.ofCrew(crew, hour, halfLife)
	if least := all.least(newest, sharesPerWord, hour, halfLife, func(*share) bool { return true }); least >= 0 {
		if own := all.find(newest); fade(all[least].weight, hour-all[least].hour, halfLife) >= all[own].weight {
			least = own // else one more exchange would lower the weight
		}
		loser := all[least].crew
		changed -= all.ofCrew(loser, hour, halfLife)
		all = slices.Delete(all, least, least+1)
		changed += all.ofCrew(loser, hour, halfLife)
	}
	return all, changed
}

// takeBack removes an exchange from the share at i. changed is as in count.
func (all shares) takeBack(i int, hour int64, halfLife time.Duration) (_ shares, changed int64) {
	crew := all[i].crew
	changed = -all.ofCrew(crew, hour, halfLife)
	all[i].fade(hour, halfLife)
	if all[i].weight -= relay.LearnedUnit; all[i].weight <= 0 {
		all = slices.Delete(all, i, i+1)
	}
	return all, changed + all.ofCrew(crew, hour, halfLife)
}

// find returns the place of a sender's share, or -1.
func (all shares) find(sender uint32) int {
	for i := range all {
		if all[i].sender == sender {
			return i
		}
	}
	return -1
}

// fullShare is the maximum of a share.
const fullShare = relay.SenderShare * relay.LearnedUnit

// isFull reports whether another exchange of an hour would change nothing.
func (s *share) isFull(hour int64) bool { return s.weight == fullShare && s.hour >= hour }

func (s *share) fade(hour int64, halfLife time.Duration) {
	s.weight, s.hour = fade(s.weight, hour-s.hour, halfLife), max(hour, s.hour)
}

// least returns the place of the least matching share, except the share of the sender newest, or -1 if no
// more than limit match.
func (all shares) least(newest uint32, limit int, hour int64, halfLife time.Duration, match func(*share) bool) int {
	if len(all) <= limit {
		return -1
	}
	least, n := -1, 0
	var weight int64
	for i := range all {
		s := &all[i]
		if !match(s) {
			continue
		}
		n++
		if w := fade(s.weight, hour-s.hour, halfLife); s.sender != newest && (least < 0 || w < weight) {
			least, weight = i, w
		}
	}
	if n <= limit {
		return -1
	}
	return least
}

// weight adds up the shares as of an hour. The search index reads it for each word of a Mecha that has changed.
func (all shares) weight(hour int64, halfLife time.Duration) (sum int64, crews int) {
	type part struct {
		crew   uint32
		weight int64
	}
	parts := make([]part, 0, sharesPerWord)
	for i := range all {
		s := &all[i]
		at := 0
		for at < len(parts) && parts[at].crew != s.crew {
			at++
		}
		if at == len(parts) {
			parts = append(parts, part{crew: s.crew})
		}
		parts[at].weight += fade(s.weight, hour-s.hour, halfLife)
	}
	for _, p := range parts {
		sum += min(p.weight, maxOfCrew)
	}
	return sum, len(parts)
}

const maxOfCrew = relay.CrewShare * relay.LearnedUnit

// ofCrew returns what a crew adds to the weight as of an hour, at most maxOfCrew.
func (all shares) ofCrew(crew uint32, hour int64, halfLife time.Duration) (sum int64) {
	for i := range all {
		if s := &all[i]; s.crew == crew {
			sum += fade(s.weight, hour-s.hour, halfLife)
		}
	}
	return min(sum, maxOfCrew)
}

// last returns the hour of the last exchange.
func (all shares) last() (hour int64) {
	for i := range all {
		hour = max(hour, all[i].hour)
	}
	return hour
}

// encode returns the stored form of shares.
func (all shares) encode() []byte {
	b := make([]byte, 0, bytesPerShare*len(all))
	for _, s := range all {
		b = binary.LittleEndian.AppendUint32(b, s.crew)
		b = binary.LittleEndian.AppendUint32(b, s.sender)
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(s.weight)), uint64(s.hour))
	}
	return b
}

func decodeShares(b []byte) (all shares, err error) {
	all = make(shares, 0, len(b)/(bytesPerShare-1)+1)
	for len(b) > 0 {
		if len(b) < 10 {
			return nil, errShares()
		}
		s := share{crew: binary.LittleEndian.Uint32(b), sender: binary.LittleEndian.Uint32(b[4:])}
		b = b[8:]
		for _, to := range []*int64{&s.weight, &s.hour} {
			n, size := binary.Uvarint(b)
			if size <= 0 || n > 1<<40 {
				return nil, errShares()
			}
			*to, b = int64(n), b[size:]
		}
		all = append(all, s)
	}
	if len(all) == 0 {
		return nil, errShares()
	}
	return all, nil
}

func errShares() error {
	return fmt.Errorf("%w: the counts of a learned word cannot be read", sqlite.ErrDamaged)
}
