package db

import (
	"encoding/binary"
	"errors"
	"fmt"

	"relay/db/file"
	"relay/db/relay"
)

// An envelope is an entry of a log: writes that one node has proposed together, in their
// order. A node gives each of its envelopes the next number. So an envelope that the log
// has twice, because the node did not learn that it had it already, is applied once.
type envelope struct {
	log     file.LogID // the log that it was made for
	origin  origin
	counter uint64 // from 1; the envelopes of one origin are applied in this order
	writes  []relay.Write
}

// origin names one run of a node, from its start to its end. It is random, because a node
// that starts again does not know which number it gave out last.
type origin [8]byte

// envelopeVersion is the version of the serial form. A program that reads another one must
// stop: it must not leave out writes that other copies of the store have applied.
const envelopeVersion = 1

const (
	maxEnvelopeWrites = 512     // writes in one envelope
	goodEnvelope      = 1 << 20 // bytes of the writes in one envelope, unless a single write has more
	maxEnvelope       = 8 << 20 // bytes of a whole envelope
	envelopeHead      = 32      // more than the bytes before the first write
)

// appendEnvelope appends the head of an envelope to b: its version, the log, the origin,
// the counter, and how many writes follow. appendToEnvelope must be called for each of them.
func appendEnvelope(b []byte, log file.LogID, from origin, counter uint64, writes int) []byte {
	b = append(b, envelopeVersion)
	b = append(append(b, log[:]...), from[:]...)
	b = binary.AppendUvarint(b, counter)
	return binary.AppendUvarint(b, uint64(writes))
}

// appendToEnvelope appends the form of a write (relay.AppendWrite), after its length.
func appendToEnvelope(b, form []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(form))), form...)
}

// readEnvelope reads an envelope, which must be all of data. It takes only the bytes that
// appendEnvelope and appendToEnvelope write. The envelope keeps no reference to data.
func readEnvelope(data []byte) (e envelope, err error) {
	if len(data) > maxEnvelope {
		return e, fmt.Errorf("an envelope has %d bytes; the most are %d", len(data), maxEnvelope)
	}
	if len(data) < 1+len(e.log)+len(e.origin) {
		return e, errEnvelope
	}
	if data[0] != envelopeVersion {
		return e, fmt.Errorf("an envelope is in version %d of its form; this program knows %d", data[0], envelopeVersion)
	}
	data = data[1+copy(e.log[:], data[1:]):]
	data = data[copy(e.origin[:], data):]
	counter, data, ok := readUvarint(data)
	writes, data, ok2 := readUvarint(data)
	if !ok || !ok2 || counter == 0 || writes == 0 || writes > maxEnvelopeWrites {
		return e, errEnvelope
	}
	e.counter, e.writes = counter, make([]relay.Write, 0, writes)
	for range writes {
		length, rest, ok := readUvarint(data)
		if !ok || length > uint64(len(rest)) {
			return e, errEnvelope
		}
		w, err := relay.ReadWrite(rest[:length])
		if err != nil {
			return e, fmt.Errorf("an envelope has a bad write: %w", err)
		}
		e.writes, data = append(e.writes, w), rest[length:]
	}
	if len(data) > 0 {
		return e, errEnvelope
	}
	return e, nil
}

var errEnvelope = errors.New("an envelope cannot be read: it is cut short, or is none")

// readUvarint reads a number in its shortest form. A longer one is refused.
func readUvarint(data []byte) (n uint64, rest []byte, ok bool) {
	n, size := binary.Uvarint(data)
	if size <= 0 || size > 1 && data[size-1] == 0 {
		return 0, nil, false
	}
	return n, data[size:], true
}

// id is the name of an envelope in the log, the same each time that it is proposed.
func (o origin) id(counter uint64) string { return fmt.Sprintf("%x-%d", o[:], counter) }
