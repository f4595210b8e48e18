package relay

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
)

// A Write is a change to the store as a value of numbers and bytes, its time included.
// The effect of a write depends on the store's state and on this value alone. So the same
// writes in the same order make the same store, on any machine and at any time. A
// decision that depends on the accepting machine (its disk, its settings, the nonces it
// remembers) is part of the value.
//
// The kinds are *SendMessage, *Acknowledge, *MarkDelivered, *ExpireDue,
// *IssueKey, *RevokeKey, *PutProfile, *RemoveMecha, *PruneMessages, *PruneUnused, *Act,
// *NoteOverdue, *NoteFull, *ClaimMessages, *EndAttempts, *ExpireMessage, *ForgetLearned,
// *CountExchanges, *UseNonce and *Activate.
// A write must not be changed once it has been handed to the store.
type Write interface {
	// When returns the time of the write. The store evaluates the write at this time, not at its own clock's.
	When() time.Time
	// Size returns roughly the bytes that the write adds to a transaction.
	Size() int

	kind() byte
	fields(*form)
	setTime(time.Time)
}

// SetTime sets the time of a write to the time of its entry in a log, at which all copies
// of the store evaluate it. The write must not have been handed to a store.
func SetTime(w Write, at time.Time) { w.setTime(at) }

// The numbers of the kinds in the serial form. The number of a kind never changes.
const (
	kindSendMessage    = 1
	kindAcknowledge    = 2
	kindMarkDelivered  = 3
	kindExpireDue      = 4
	kindIssueKey       = 5
	kindRevokeKey      = 6
	kindPutProfile     = 7
	kindRemoveMecha    = 8
	kindPruneMessages  = 9
	kindPruneUnused    = 10
	kindAct            = 11
	kindNoteOverdue    = 12
	kindNoteFull       = 13
	kindClaimMessages  = 14
	kindEndAttempts    = 15
	kindExpireMessage  = 16
	kindForgetLearned  = 17
	kindCountExchanges = 18
	kindUseNonce       = 19
	kindActivate       = 20

	Kinds = 21 // numbers, from 0, which is none
)

// KindOf returns the number of a write's kind, less than Kinds.
func KindOf(w Write) int { return int(w.kind()) }

// writeVersion is the newest version of the serial form. A program that reads a version or a
// kind that it does not know must stop: it must not leave out a write that other copies of
// the store have applied. RulesOf must list each newer version and kind.
//
// A write has the oldest version that can hold it: fields that a version has added are left
// out if all of them are zero. So a write that does not use them has the bytes that it had
// before.
const writeVersion = 1

// writes makes an empty write of each kind.
var writes = [Kinds]func() Write{
	kindSendMessage:    empty[SendMessage],
	kindAcknowledge:    empty[Acknowledge],
	kindMarkDelivered:  empty[MarkDelivered],
	kindExpireDue:      empty[ExpireDue],
	kindIssueKey:       empty[IssueKey],
	kindRevokeKey:      empty[RevokeKey],
	kindPutProfile:     empty[PutProfile],
	kindRemoveMecha:    empty[RemoveMecha],
	kindPruneMessages:  empty[PruneMessages],
	kindPruneUnused:    empty[PruneUnused],
	kindAct:            empty[Act],
	kindNoteOverdue:    empty[NoteOverdue],
	kindNoteFull:       empty[NoteFull],
	kindClaimMessages:  empty[ClaimMessages],
	kindEndAttempts:    empty[EndAttempts],
	kindExpireMessage:  empty[ExpireMessage],
	kindForgetLearned:  empty[ForgetLearned],
	kindCountExchanges: empty[CountExchanges],
	kindUseNonce:       empty[UseNonce],
	kindActivate:       empty[Activate],
}

func empty[T any, P interface {
	*T
	Write
}]() Write {
	return P(new(T))
}

// NewWrite returns an empty write of a kind, or nil for an unknown number.
func NewWrite(kind int) Write {
	if kind < 0 || kind >= Kinds || writes[kind] == nil {
		return nil
	}
	return writes[kind]()
}

// AppendWrite appends the serial form of a write to b: its kind, the version of
// the form, and its fields in the order of the type's fields method. Integers and
// times are varints, texts and bytes are preceded by their length. Times keep
// their nanoseconds but not their zone.
func AppendWrite(b []byte, w Write) []byte {
	f := form{bytes: append(b, w.kind(), 1), version: 1}
	w.fields(&f)
	if needed := f.version; needed > 1 { // again, since fields of the versions in between were left out
		f = form{bytes: append(b, w.kind(), needed), version: needed}
		w.fields(&f)
	}
	return f.bytes
}

// ReadWrite reads the serial form of one write, which must be all of data. It accepts
// only bytes that AppendWrite writes. The write keeps no reference to data.
func ReadWrite(data []byte) (Write, error) {
	if len(data) < 2 {
		return nil, errors.New("a write ends early")
	}
	w := NewWrite(int(data[0]))
	if w == nil {
		return nil, fmt.Errorf("a write is of kind %d, which this program does not know", data[0])
	}
	if err := readForm(w, data, writeVersion); err != nil {
		return nil, err
	}
	return w, nil
}

// readForm reads the serial form into a write of its kind, as a program that knows the versions up
// to newest.
func readForm(w Write, data []byte, newest byte) error {
	if data[1] < 1 || data[1] > newest {
		return fmt.Errorf("a write is in version %d of its form; this program knows the versions up to %d", data[1], newest)
	}
	f := form{bytes: data[2:], reading: true, version: data[1]}
	w.fields(&f)
	switch {
	case f.err != nil:
		return f.err
	case len(f.bytes) > 0:
		return fmt.Errorf("a write has %d bytes too many", len(f.bytes))
	case data[1] > 1 && !bytes.Equal(AppendWrite(nil, w), data):
		return fmt.Errorf("a write is in version %d of its form, but an older one holds it", data[1])
	}
	return nil
}

// form writes the fields of a write, or reads them. One list of fields serves both,
// so that they cannot differ.
type form struct {
	bytes   []byte // the bytes written so far, or those still to be read
	reading bool
	version byte  // that is read, or the oldest one that holds what was written so far
	err     error // the first fault while reading
}

// since reports whether the fields that a version has added follow. When a write is written,
// they follow if used, which says that one of them is not zero.
func (f *form) since(version byte, used bool) bool {
	if !f.reading && used {
		f.version = max(f.version, version)
	}
	return f.version >= version
}

// texts reads or writes a list of texts: their number, then each of them.
func (f *form) texts(v *[]string) {
	n := int64(len(*v))
	f.int64(&n)
	if !f.reading {
		for i := range *v {
			text(f, &(*v)[i])
		}
		return
	}
	if n < 0 || n > int64(len(f.bytes)) { // each text takes a byte at least
		f.fail("a list is too long")
		return
	}
	for range n {
		var s string
		text(f, &s)
		*v = append(*v, s)
	}
}

func (f *form) fail(reason string) {
	if f.err == nil {
		f.err = errors.New("a write cannot be read: " + reason)
	}
	f.bytes = nil
}

func (f *form) int64(v *int64) {
	if !f.reading {
		f.bytes = binary.AppendVarint(f.bytes, *v)
		return
	}
	n, size := binary.Varint(f.bytes)
	if size <= 0 || size > 1 && f.bytes[size-1] == 0 { // a shorter form of the same number exists
		f.fail("a number is malformed")
		return
	}
	*v, f.bytes = n, f.bytes[size:]
}

// integer reads or writes any field whose type is an integer.
func integer[T ~int64 | ~int | ~int8](f *form, v *T) {
	n := int64(*v)
	f.int64(&n)
	if *v = T(n); int64(*v) != n {
		f.fail("a number is too large")
	}
}

func (f *form) bool(v *bool) {
	n := int64(0)
	if *v {
		n = 1
	}
	f.int64(&n)
	if n != 0 && n != 1 {
		f.fail("a boolean is not 0 or 1")
	}
	*v = n == 1
}

// zeroTime is the form of the zero time: seconds below those of every valid time.
const zeroTime = math.MinInt64

func (f *form) time(v *time.Time) {
	seconds, nanos := int64(zeroTime), int64(0)
	if !v.IsZero() {
		seconds, nanos = v.Unix(), int64(v.Nanosecond())
	}
	f.int64(&seconds)
	f.int64(&nanos)
	switch {
	case !f.reading || f.err != nil:
	case seconds == zeroTime && nanos == 0:
		*v = time.Time{}
	case nanos < 0 || nanos >= int64(time.Second) || seconds < minSeconds || seconds > maxSeconds:
		f.fail("a time is out of range")
	default:
		if *v = time.Unix(seconds, nanos).UTC(); v.IsZero() {
			f.fail("the zero time has another form")
		}
	}
}

// The first and the last second of the years that ParseTime accepts.
var (
	minSeconds = time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	maxSeconds = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC).Unix()
)

func (f *form) blob(v *[]byte) {
	if !f.reading {
		f.bytes = binary.AppendUvarint(f.bytes, uint64(len(*v)))
		f.bytes = append(f.bytes, *v...)
		return
	}
	if part := f.part(); len(part) > 0 {
		*v = append([]byte(nil), part...)
	}
}

// text reads or writes any field whose type is a string.
func text[T ~string](f *form, v *T) {
	if !f.reading {
		f.bytes = binary.AppendUvarint(f.bytes, uint64(len(*v)))
		f.bytes = append(f.bytes, *v...)
		return
	}
	*v = T(f.part())
}

// part reads a length and returns as many bytes.
func (f *form) part() []byte {
	n, size := binary.Uvarint(f.bytes)
	if size <= 0 || size > 1 && f.bytes[size-1] == 0 || n > uint64(len(f.bytes)-size) {
		f.fail("a length is malformed")
		return nil
	}
	part := f.bytes[size : size+int(n)]
	f.bytes = f.bytes[size+int(n):]
	return part
}

// hash reads or writes 32 bytes without a length.
func (f *form) hash(v *[32]byte) {
	if !f.reading {
		f.bytes = append(f.bytes, v[:]...)
		return
	}
	if len(f.bytes) < len(v) {
		f.fail("a hash is cut short")
		return
	}
	f.bytes = f.bytes[copy(v[:], f.bytes):]
}
