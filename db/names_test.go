package db

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"relay/db/internal/engine"
	"relay/db/internal/messages"
	"relay/db/relay"
)

// A word or a Mecha that a transaction has read by its number is remembered once it is committed, and
// not if it is rolled back: the number may then belong to another one.
func TestTheWriterRemembersTextsAfterACommit(t *testing.T) {
	t.Parallel()
	d := openHere(t)
	a, b := mustIssue(t, d, "a^b"), mustIssue(t, d, "b^b")
	m := message(a, "b^b", `{}`)
	m.Conversation = "a-label"
	sent, err := d.Send(m)
	if err != nil {
		t.Fatal(err)
	}
	d.w.Words.Forget()
	d.w.Mechas.Forget()
	known := func() (label, sender bool) {
		id := scalar(t, d, "SELECT id FROM word WHERE text = 'a-label'")
		_, label = d.w.Words.Text.Find(id)
		_, sender = d.w.Mechas.Text.Find(int64(a.Mecha.Number))
		return label, sender
	}
	read := func(fails error) error {
		return d.wait(localWrite(func(t *engine.Tx) error {
			if m, err := messages.ByID(&t.Rx, sent.ID); err != nil || m.Conversation != "a-label" || m.From != "a^b" {
				return errors.Join(fmt.Errorf("%+v", m), err)
			}
			return fails
		}))
	}
	if err := read(errPoison); !errors.Is(err, errPoison) {
		t.Fatal(err)
	}
	if label, sender := known(); label || sender {
		t.Errorf("the label is known: %v, the sender: %v, after a transaction that was rolled back", label, sender)
	}
	if err := read(nil); err != nil {
		t.Fatal(err)
	}
	if label, sender := known(); !label || !sender {
		t.Errorf("the label is known: %v, the sender: %v, after a commit", label, sender)
	}
	if _, err := d.Acknowledge(&relay.Acknowledge{At: time.Now(), Key: b.Number, ID: sent.ID, Status: "completed", Nonce: 1}); err != nil {
		t.Error(err)
	}
}
