package search

import (
	"encoding/binary"
	"errors"
	"hash/fnv"
	"slices"
	"sync"

	"relay/db/relay"
)

// A record is the forward index of one profile, by which the reranker scores it: its
// words in order, as hashes, by field and skill. It is stored with the profile's document
// in the index, so that both always have the same state; the cache of records bounds the
// memory that they take.
type record struct {
	id       relay.MechaNumber
	address  relay.Address
	names    []string // normalised: the name of the address, the display name
	skills   []string // ids, or names of skills without an id
	lengths  [fields]int
	total    int // the length of the combined text
	passages []passage
	room     int // roughly its bytes in memory, with its trigrams

	trigramsOnce sync.Once
	trigrams     [][]trigram // see nameTrigrams
}

// nameTrigrams returns the sorted trigrams of each of the names. It makes them at the first
// call, since most queries are not names. Any goroutine may call it.
func (r *record) nameTrigrams() [][]trigram {
	r.trigramsOnce.Do(func() {
		for _, name := range r.names {
			list := trigrams(name)
			slices.SortFunc(list, compareTrigrams)
			r.trigrams = append(r.trigrams, list)
		}
	})
	return r.trigrams
}

// A passage is one text of a profile, such as its description, one example or a
// skill's name.
type passage struct {
	field  field
	skill  int      // index in skills, or -1
	words  []uint32 // hashes, in the order of the text
	joined []uint32 // hashes of the joined words of camelCase, which have no place in the order and no length
}

// HashTerm returns the hash of a term in records. Terms with the same hash are confused;
// with 32 bits this changes about one search in ten thousand, by the weight of one word
// in one profile.
func HashTerm(term string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(term))
	return h.Sum32()
}

var errRecord = errors.New("search: damaged record")

func (r *record) encode() []byte {
	b := make([]byte, 0, 256)
	b = binary.AppendUvarint(b, uint64(r.id))
	b = appendString(b, string(r.address))
	b = appendStrings(b, r.names)
	b = appendStrings(b, r.skills)
	for _, n := range r.lengths {
		b = binary.AppendUvarint(b, uint64(n))
	}
	b = binary.AppendUvarint(b, uint64(r.total))
	b = binary.AppendUvarint(b, uint64(len(r.passages)))
	for _, p := range r.passages {
		b = append(b, byte(p.field))
		b = binary.AppendUvarint(b, uint64(p.skill+1))
		b = appendHashes(b, p.words)
		b = appendHashes(b, p.joined)
	}
	return b
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendStrings(b []byte, list []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, s := range list {
		b = appendString(b, s)
	}
	return b
}

func appendHashes(b []byte, list []uint32) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, h := range list {
		b = binary.LittleEndian.AppendUint32(b, h)
	}
	return b
}

// decode reads a record that encode wrote into r, which is empty. For damaged bytes it
// returns errRecord; it does not panic.
func (r *record) decode(b []byte) error {
	d := decoder{b: b, room: make([]uint32, 0, len(b)/4)}
	r.id = relay.MechaNumber(d.long())
	r.address = relay.Address(d.string())
	r.names = d.strings()
	r.skills = d.strings()
	for i := range r.lengths {
		r.lengths[i] = d.number()
	}
	r.total = d.number()
	n := d.number()
	if n > len(d.b) {
		return errRecord
	}
	r.passages = make([]passage, n)
	for i := range r.passages {
		p := &r.passages[i]
		p.field = field(d.byte())
		p.skill = d.number() - 1
		p.words = d.hashes()
		p.joined = d.hashes()
		if p.field >= fields || p.skill >= len(r.skills) {
			return errRecord
		}
	}
	if d.failed {
		return errRecord
	}
	r.room = len(b) + bytesPerRecord + bytesPerPassage*len(r.passages) + bytesPerString*(len(r.names)+len(r.skills))
	for _, name := range r.names {
		r.room += bytesPerTrigram * len(name)
	}
	return nil
}

// The memory of parts of a record, besides their bytes in the index.
const (
	bytesPerRecord  = 256
	bytesPerPassage = 64
	bytesPerString  = 16
	bytesPerTrigram = 12
)

// A decoder reads values from the front of b. After an error failed is set, and
// every further value is zero.
type decoder struct {
	b      []byte
	failed bool
	room   []uint32 // for all lists of hashes
}

func (d *decoder) long() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.b, d.failed = nil, true
		return 0
	}
	d.b = d.b[n:]
	return v
}

// number reads a count or a length. One that is too large for any record is an error.
func (d *decoder) number() int {
	v := d.long()
	if v > 1<<28 {
		d.b, d.failed = nil, true
		return 0
	}
	return int(v)
}

func (d *decoder) take(n int) []byte {
	if n > len(d.b) {
		d.b, d.failed = nil, true
		return nil
	}
	b := d.b[:n]
	d.b = d.b[n:]
	return b
}

func (d *decoder) byte() byte {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) string() string { return string(d.take(d.number())) }

func (d *decoder) strings() (list []string) {
	for n := d.number(); n > 0 && !d.failed; n-- {
		list = append(list, d.string())
	}
	return list
}

func (d *decoder) hashes() []uint32 {
	began := len(d.room)
	for b := d.take(4 * d.number()); len(b) >= 4; b = b[4:] {
		d.room = append(d.room, binary.LittleEndian.Uint32(b))
	}
	return d.room[began:len(d.room):len(d.room)]
}
