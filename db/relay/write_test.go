package relay_test

import (
	"bytes"
	"reflect"
	"testing"
	"time"

	"relay/db/relay"
)

// at has a fraction below the millisecond, which the form keeps.
var at = time.Date(2026, 11, 20, 8, 0, 0, 123456789, time.UTC)

// writes has one of every kind, with every field set.
var writes = []relay.Write{
	&relay.SendMessage{At: at, Key: 7, To: "bob^demo", Version: "1.0", Type: "quote", Priority: "high", Conversation: "conv_x", CorrelationID: "c-1\n",
		ExpiresAt: at.Add(time.Hour), InReplyTo: "msg_0", AckBy: at.Add(time.Minute), MaxMessages: 12, Trace: relay.Trace{Parent: "00-1-2-01", State: "a=b"}, Payload: []byte(`{"n": 1.0}`), PayloadSHA256: [32]byte{1, 31: 9}, Signed: true, Nonce: -5,
		Idempotency: relay.IdempotencyKey{Key: -1, Body: 1 << 62}, OnlyReplay: true, DiskFull: true, MaxPending: 100_000, ConversationLimit: 50, MaxBroadcast: 100, MaxBroadcastBytes: 8 << 20,
		SearchID: "srch_1", Sought: []string{"book", "", "flight"}},
	&relay.Acknowledge{At: at, Key: 1 << 40, ID: "msg_1", Status: "completed", ClientTS: "2026-11-20T08:00:00Z", Detail: "wörd", RetryAfter: time.Minute, Nonce: 9, Learns: true},
	&relay.MarkDelivered{At: at, Key: 3, ID: "msg_2", Nonce: 11},
	&relay.ExpireDue{At: at},
	&relay.IssueKey{At: at, Address: "bob^demo", Label: "laptop", ExpiresAt: at.Add(time.Minute), WithSecret: true, Replaces: "key_old",
		Overlap: time.Hour, ID: "key_new", Hash: [32]byte{2, 31: 8}, Secret: "ms_secret", Broadcast: true},
	&relay.RevokeKey{At: at, ID: "key_new"},
	&relay.PutProfile{At: at, Key: 5, Address: "bob^demo", Register: true, Profile: relay.StoredProfile{Body: []byte(`{"tags":["a"]}`), Card: []byte(`{}`), Visibility: relay.CrewOnly, AcceptFrom: []byte(`["*^demo"]`), NoLearn: true}, Nonce: 13},
	&relay.CountExchanges{At: at, HalfLife: time.Hour, Limit: 64},
	&relay.ForgetLearned{At: at, Address: "bob^demo"},
	&relay.RemoveMecha{At: at, Address: "bob^demo"},
	&relay.PruneMessages{At: at, After: 5, Before: 1 << 50, ExpiredAfter: at.Add(-time.Hour), ExpiredBefore: at.Add(-time.Minute), Limit: 64},
	&relay.PruneUnused{At: at, EmptySince: at.Add(-time.Hour), Words: 3, Keys: 4, Mechas: 5, Limit: 500},
	&relay.NoteOverdue{At: at},
	&relay.ClaimMessages{At: at, Key: 7, Limit: 3, Lease: time.Minute, Worker: "w-1", Nonce: 5},
	&relay.EndAttempts{At: at, MaxAttempts: 3},
	&relay.NoteFull{At: at, Key: 7, Conversation: -3},
	&relay.UseNonce{At: at, Key: 7, Nonce: -9},
	&relay.Activate{At: at, Rules: 2},
	&relay.ExpireMessage{At: at, ID: "msg_3"},
	&relay.Act{At: at, By: relay.Actor{UID: 1000, User: "maria", Command: "key revoke"}, Write: &relay.RevokeKey{At: at, ID: "key_new"}, What: "word", Detail: "why"},
}

func TestEveryWriteSurvivesItsForm(t *testing.T) {
	for _, w := range writes {
		v := reflect.ValueOf(w).Elem()
		for i := range v.NumField() {
			if v.Field(i).IsZero() {
				t.Errorf("%T: the test does not set %s", w, v.Type().Field(i).Name)
			}
		}
		empty := reflect.New(v.Type()).Interface().(relay.Write)
		for _, w := range []relay.Write{w, empty} {
			form := relay.AppendWrite([]byte("before"), w)[len("before"):]
			got, err := relay.ReadWrite(form)
			if err != nil || !reflect.DeepEqual(got, w) {
				t.Errorf("%T: wrote %+v, read %+v, %v", w, w, got, err)
			}
			for n := range form {
				if _, err := relay.ReadWrite(form[:n]); err == nil {
					t.Errorf("%T: %d bytes of %d were read", w, n, len(form))
				}
			}
			if _, err := relay.ReadWrite(append(bytes.Clone(form), 0)); err == nil {
				t.Errorf("%T: a byte too many was read", w)
			}
			form[1]++
			if _, err := relay.ReadWrite(form); err == nil {
				t.Errorf("%T: another version was read", w)
			}
		}
	}
	if _, err := relay.ReadWrite([]byte{99, 1}); err == nil {
		t.Error("an unknown kind was read")
	}
}

// A write that is given another time has it in all its parts.
func TestAWriteTakesTheTimeOfItsPlace(t *testing.T) {
	later := at.Add(time.Hour)
	for _, w := range writes {
		w, err := relay.ReadWrite(relay.AppendWrite(nil, w)) // the others keep theirs
		if err != nil {
			t.Fatal(err)
		}
		relay.SetTime(w, later)
		form := relay.AppendWrite(nil, w)
		if !w.When().Equal(later) || bytes.Contains(form, relay.AppendWrite(nil, &relay.ExpireDue{At: at})[2:]) {
			t.Errorf("%T: %v, %+v", w, w.When(), w)
		}
	}
}

// The form must not change once a log has it. If this fails, the form needs a new
// version, and the old one must still be read.
func TestTheFormOfWritesIsFixed(t *testing.T) {
	for w, want := range map[relay.Write]string{
		&relay.MarkDelivered{At: time.Unix(3, 5), Key: 3, ID: "msg_2", Nonce: 11}: "\x03\x01\x06\x0a\x06\x05msg_2\x16",
		&relay.RevokeKey{ID: "k"}: "\x06\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00\x01k",
	} {
		if form := relay.AppendWrite(nil, w); string(form) != want {
			t.Errorf("%T: %q, want %q", w, form, want)
		}
	}
}

// A write that can be read is written again as the same bytes.
func FuzzReadWrite(f *testing.F) {
	for _, w := range writes {
		f.Add(relay.AppendWrite(nil, w))
	}
	f.Fuzz(func(t *testing.T, form []byte) {
		w, err := relay.ReadWrite(form)
		if err != nil {
			return
		}
		if again := relay.AppendWrite(nil, w); !bytes.Equal(again, form) {
			t.Fatalf("%q is read as %+v, which is written as %q", form, w, again)
		}
	})
}
