package db

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"

	"relay/db/file"
	"relay/db/relay"
)

// formOf gives the form of an envelope.
func formOf(e envelope) []byte {
	b := appendEnvelope(nil, e.log, e.origin, e.counter, len(e.writes))
	for _, w := range e.writes {
		b = appendToEnvelope(b, relay.AppendWrite(nil, w))
	}
	return b
}

// someEnvelopes have different counters, lengths and writes.
func someEnvelopes() []envelope {
	at := time.Date(2026, 11, 20, 8, 0, 0, 5, time.UTC)
	send := &relay.SendMessage{At: at, Key: 7, To: "bob^demo", Version: "1.0", Type: "quote", Priority: "high", Payload: []byte(strings.Repeat("x", 300)), Sought: []string{"book"}}
	many := envelope{counter: 1 << 40, log: file.LogID{7: 1}, origin: origin{1, 7: 9}}
	for i := range maxEnvelopeWrites {
		many.writes = append(many.writes, &relay.MarkDelivered{At: at, Key: relay.KeyNumber(i), ID: "msg_2", Nonce: 11})
	}
	return []envelope{
		{counter: 1, writes: []relay.Write{&relay.ExpireDue{At: at}}},
		{counter: 200, origin: origin{0xff, 2}, writes: []relay.Write{send, &relay.Act{At: at, Write: &relay.RevokeKey{At: at, ID: "key_1"}}, &relay.ExpireDue{}}},
		many,
	}
}

func TestAnEnvelopeSurvivesItsForm(t *testing.T) {
	for _, e := range someEnvelopes() {
		form := formOf(e)
		got, err := readEnvelope(form)
		if err != nil || !reflect.DeepEqual(got, e) {
			t.Errorf("wrote %+v, read %+v, %v", e, got, err)
		}
		for n := range form[:min(len(form), 1000)] {
			if _, err := readEnvelope(form[:n]); err == nil {
				t.Errorf("%d bytes of %d were read", n, len(form))
			}
		}
		if _, err := readEnvelope(append(bytes.Clone(form), 0)); err == nil {
			t.Error("a byte too many was read")
		}
		form[0]++
		if _, err := readEnvelope(form); err == nil {
			t.Error("another version was read")
		}
	}
	none, tooMany := envelope{counter: 1}, someEnvelopes()[2]
	tooMany.writes = append(tooMany.writes, &relay.ExpireDue{})
	unnumbered := someEnvelopes()[0]
	unnumbered.counter = 0
	large := envelope{counter: 1, writes: []relay.Write{&relay.SendMessage{Payload: make([]byte, maxEnvelope)}}}
	for what, e := range map[string]envelope{"no write": none, "too many writes": tooMany, "no number": unnumbered, "too many bytes": large} {
		if _, err := readEnvelope(formOf(e)); err == nil {
			t.Errorf("an envelope with %s was read", what)
		}
	}
}

// The form must not change once a log has it.
func TestTheFormOfEnvelopesIsFixed(t *testing.T) {
	e := envelope{log: file.LogID{11, 12, 13, 14, 15, 16, 17, 18}, origin: origin{1, 2, 3, 4, 5, 6, 7, 8}, counter: 300, writes: []relay.Write{&relay.MarkDelivered{At: time.Unix(3, 5), Key: 3, ID: "msg_2", Nonce: 11}}}
	const want = "\x01\x0b\x0c\x0d\x0e\x0f\x10\x11\x12" + "\x01\x02\x03\x04\x05\x06\x07\x08\xac\x02\x01" + "\x0c" + "\x03\x01\x06\x0a\x06\x05msg_2\x16"
	if form := formOf(e); string(form) != want {
		t.Errorf("%q, want %q", form, want)
	}
	if id := e.origin.id(e.counter); id != "0102030405060708-300" {
		t.Errorf("its id is %s", id)
	}
}

// An envelope that can be read is written again as the same bytes.
func FuzzReadEnvelope(f *testing.F) {
	for _, e := range someEnvelopes()[:2] {
		f.Add(formOf(e))
	}
	f.Fuzz(func(t *testing.T, form []byte) {
		e, err := readEnvelope(form)
		if err != nil {
			return
		}
		if again := formOf(e); !bytes.Equal(again, form) {
			t.Fatalf("%q is read as %+v, which is written as %q", form, e, again)
		}
	})
}
