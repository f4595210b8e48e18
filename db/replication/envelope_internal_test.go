package replication

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"

	"relay/db/file"
	"relay/db/relay"
)

// formOf returns the form of an envelope.
func formOf(e Envelope) []byte {
	b := AppendEnvelope(nil, e.Log, e.Origin, e.Counter, len(e.Writes))
	for _, w := range e.Writes {
		b = AppendToEnvelope(b, relay.AppendWrite(nil, w))
	}
	return b
}

// someEnvelopes have different counters, lengths and writes.
func someEnvelopes() []Envelope {
	at := time.Date(2026, 11, 20, 8, 0, 0, 5, time.UTC)
	send := &relay.SendMessage{At: at, Key: 7, To: "bob^demo", Version: "1.0", Type: "quote", Priority: "high", Payload: []byte(strings.Repeat("x", 300)), Sought: []string{"book"}}
	many := Envelope{Counter: 1 << 40, Log: file.LogID{7: 1}, Origin: Origin{1, 7: 9}}
	for i := range maxEnvelopeWrites {
		many.Writes = append(many.Writes, &relay.MarkDelivered{At: at, Key: relay.KeyNumber(i), ID: "msg_2", Nonce: 11})
	}
	return []Envelope{
		{Counter: 1, Writes: []relay.Write{&relay.ExpireDue{At: at}}},
		{Counter: 200, Origin: Origin{0xff, 2}, Writes: []relay.Write{send, &relay.Act{At: at, Write: &relay.RevokeKey{At: at, ID: "key_1"}}, &relay.ExpireDue{}}},
		many,
	}
}

func TestAnEnvelopeSurvivesItsForm(t *testing.T) {
	for _, e := range someEnvelopes() {
		form := formOf(e)
		got, err := ReadEnvelope(form)
		if err != nil || !reflect.DeepEqual(got, e) {
			t.Errorf("wrote %+v, read %+v, %v", e, got, err)
		}
		for n := range form[:min(len(form), 1000)] {
			if _, err := ReadEnvelope(form[:n]); err == nil {
				t.Errorf("%d bytes of %d were read", n, len(form))
			}
		}
		if _, err := ReadEnvelope(append(bytes.Clone(form), 0)); err == nil {
			t.Error("a byte too many was read")
		}
		form[0]++
		if _, err := ReadEnvelope(form); err == nil {
			t.Error("another version was read")
		}
	}
	none, tooMany := Envelope{Counter: 1}, someEnvelopes()[2]
	tooMany.Writes = append(tooMany.Writes, &relay.ExpireDue{})
	unnumbered := someEnvelopes()[0]
	unnumbered.Counter = 0
	large := Envelope{Counter: 1, Writes: []relay.Write{&relay.SendMessage{Payload: make([]byte, maxEnvelope)}}}
	for what, e := range map[string]Envelope{"no write": none, "too many writes": tooMany, "no number": unnumbered, "too many bytes": large} {
		if _, err := ReadEnvelope(formOf(e)); err == nil {
			t.Errorf("an envelope with %s was read", what)
		}
	}
}

// The form must not change once a log has it.
func TestTheFormOfEnvelopesIsFixed(t *testing.T) {
	e := Envelope{Log: file.LogID{11, 12, 13, 14, 15, 16, 17, 18}, Origin: Origin{1, 2, 3, 4, 5, 6, 7, 8}, Counter: 300, Writes: []relay.Write{&relay.MarkDelivered{At: time.Unix(3, 5), Key: 3, ID: "msg_2", Nonce: 11}}}
	const want = "\x01\x0b\x0c\x0d\x0e\x0f\x10\x11\x12" + "\x01\x02\x03\x04\x05\x06\x07\x08\xac\x02\x01" + "\x0c" + "\x03\x01\x06\x0a\x06\x05msg_2\x16"
	if form := formOf(e); string(form) != want {
		t.Errorf("%q, want %q", form, want)
	}
	if id := e.Origin.ID(e.Counter); id != "0102030405060708-300" {
		t.Errorf("its id is %s", id)
	}
}

// An envelope that can be read is written again as the same bytes.
func FuzzReadEnvelope(f *testing.F) {
	for _, e := range someEnvelopes()[:2] {
		f.Add(formOf(e))
	}
	f.Fuzz(func(t *testing.T, form []byte) {
		e, err := ReadEnvelope(form)
		if err != nil {
			return
		}
		if again := formOf(e); !bytes.Equal(again, form) {
			t.Fatalf("%q is read as %+v, which is written as %q", form, e, again)
		}
	})
}
