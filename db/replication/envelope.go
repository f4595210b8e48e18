package replication

import (
	"encoding/binary"
	"errors"
	"fmt"

	"relay/db/file"
	"relay/db/relay"
)

// An Envelope is an entry of a log: writes that one node has proposed together, in their
// order. A node gives each of its envelopes the next number. So an envelope that the log
// has twice, because the node did not learn of the first time, is applied once.
type Envelope struct {
	Log     file.LogID // the log for which it was made
	Origin  Origin
	Counter uint64 // from 1; the envelopes of one origin are applied in this order
	Writes  []relay.Write
}

// Origin names one run of a node, from its start to its end. It is random, because a
// restarted node does not know which number it used last.
type Origin [8]byte

// EnvelopeVersion is the version of the serial form. A program that reads another one must
// stop: it must not leave out writes that other copies of the store have applied.
const EnvelopeVersion = 1

const (
	maxEnvelopeWrites = 512     // writes in one envelope
	goodEnvelope      = 1 << 20 // bytes of the writes in one envelope, unless a single write has more
	maxEnvelope       = 8 << 20 // bytes of a whole envelope
	envelopeHead      = 32      // more than the bytes before the first write
)

// AppendEnvelope appends the head of an envelope to b: its version, the log, the origin,
// the counter, and how many writes follow. AppendToEnvelope must be called for each of them.
func AppendEnvelope(b []byte, log file.LogID, from Origin, counter uint64, writes int) []byte {
	b = append(b, EnvelopeVersion)
	b = append(append(b, log[:]...), from[:]...)
	b = binary.AppendUvarint(b, counter)
	return binary.AppendUvarint(b, uint64(writes))
}

// AppendToEnvelope appends the form of a write (relay.AppendWrite), after its length.
func AppendToEnvelope(b, form []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(form))), form...)
}

// ReadEnvelope reads an envelope, which must be all of data. It takes only the bytes that
// AppendEnvelope and AppendToEnvelope write. The envelope keeps no reference to data.
func ReadEnvelope(data []byte) (e Envelope, err error) {
	if len(data) > maxEnvelope {
		return e, fmt.Errorf("an envelope has %d bytes; the most are %d", len(data), maxEnvelope)
	}
	if len(data) < 1+len(e.Log)+len(e.Origin) {
		return e, ErrEnvelope
	}
	if data[0] != EnvelopeVersion {
		return e, fmt.Errorf("an envelope is in version %d of its form; this program knows %d", data[0], EnvelopeVersion)
	}
	data = data[1+copy(e.Log[:], data[1:]):]
	data = data[copy(e.Origin[:], data):]
	counter, data, ok := readUvarint(data)
	writes, data, ok2 := readUvarint(data)
	if !ok || !ok2 || counter == 0 || writes == 0 || writes > maxEnvelopeWrites {
		return e, ErrEnvelope
	}
	e.Counter, e.Writes = counter, make([]relay.Write, 0, writes)
	for range writes {
		length, rest, ok := readUvarint(data)
		if !ok || length > uint64(len(rest)) {
			return e, ErrEnvelope
		}
		w, err := relay.ReadWrite(rest[:length])
		if err != nil {
			return e, fmt.Errorf("an envelope has a bad write: %w", err)
		}
		e.Writes, data = append(e.Writes, w), rest[length:]
	}
	if len(data) > 0 {
		return e, ErrEnvelope
	}
	return e, nil
}

var ErrEnvelope = errors.New("an envelope cannot be read: it is cut short, or is none")

// readUvarint reads a number in its shortest form. A longer one is refused.
func readUvarint(data []byte) (n uint64, rest []byte, ok bool) {
	n, size := binary.Uvarint(data)
	if size <= 0 || size > 1 && data[size-1] == 0 {
		return 0, nil, false
	}
	return n, data[size:], true
}

// ID returns the name of an envelope in the log, the same each time that it is proposed.
func (o Origin) ID(counter uint64) string { return fmt.Sprintf("%x-%d", o[:], counter) }
