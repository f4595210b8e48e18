package db_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"relay/db"
	"relay/db/file"
	"relay/db/relay"
	"relay/db/scratch"
)

// Removed pending messages free their places: in the count of the mailbox, and in the sync
// windows of sockets. They are not receipts.
func TestARemovedPendingMessageFreesItsPlace(t *testing.T) {
	s := mustOpen(t, func(o *db.Options) { o.MaxPending = 3 })
	alice, bob := s.mustIssue("alice^demo"), s.mustIssue("bob^demo")
	changes := make(chan relay.Change, 100)
	s.OnCommit(func(c *relay.Commit) {
		for _, change := range c.Changes {
			changes <- change
		}
	})
	var sent []relay.Sent
	for range 3 {
		sent = append(sent, s.mustSend(alice.Key, "bob^demo", `{}`))
	}
	_, err := s.send(alice.Key, "bob^demo", `{}`)
	wantCode(t, err, relay.MailboxFull)
	s.mustPrune(sent[2].ID, 10)
	for _, m := range sent[:2] {
		if c := <-changes; c.ID != m.ID || !c.Freed || c.New || c.Recipient != bob.Mecha.Number {
			t.Errorf("%+v", c)
		}
	}
	for range 2 {
		s.mustSend(alice.Key, "bob^demo", `{}`)
	}
	_, err = s.send(alice.Key, "bob^demo", `{}`)
	wantCode(t, err, relay.MailboxFull)
	if box, err := s.Inbox(ctx, bob.Mecha.Number); err != nil || box.Pending != 3 {
		t.Errorf("%+v, %v", box, err)
	}
}

// A message with a thousand receipts goes with all of them.
func TestAMessageGoesWithItsReceipts(t *testing.T) {
	t.Parallel()
	s := mustOpen(t)
	alice, bob := s.mustIssue("alice^demo"), s.mustIssue("bob^demo")
	long, short := s.mustSend(alice.Key, "bob^demo", `{}`), s.mustSend(alice.Key, "bob^demo", `{}`)
	for i := range scratch.Amount(t, 30, 900) {
		if _, err := s.ack(bob.Key, long.ID, "processing", func(a *relay.Acknowledge) { a.Detail = fmt.Sprint(i) }); err != nil {
			t.Fatal(err)
		}
	}
	s.mustAck(bob.Key, short.ID, "completed")
	if n := s.mustPrune(short.ID, 10).Messages; n != 1 {
		t.Fatalf("%d were removed", n)
	}
	s.Close()
	d := byHand(t, s.Path())
	defer d.Close()
	var receipts, progress, payloads int
	if err := d.QueryRow("SELECT (SELECT count(*) FROM receipt), (SELECT count(*) FROM progress), (SELECT count(*) FROM payload)").Scan(&receipts, &progress, &payloads); err != nil || receipts != 1 || progress != 0 || payloads != 1 {
		t.Errorf("%d receipts, %d counts, %d payloads are left; %v", receipts, progress, payloads, err)
	}
	wantSound(t, s.Path())
}

// Ended keys and removed Mechas go when no message refers to them, and not before.
func TestKeysAndMechasWithoutReferencesGo(t *testing.T) {
	t.Parallel()
	s := mustOpen(t)
	alice, bob := s.mustIssue("alice^demo"), s.mustIssue("bob^demo")
	s.mustIssue("last^demo") // the row with the greatest number stays
	asked := s.mustSend(bob.Key, "alice^demo", `{}`)
	s.mustAck(alice.Key, asked.ID, "completed")
	s.mustSend(alice.Key, "last^demo", `{}`)
	if err := s.Revoke(&relay.RevokeKey{At: time.Now(), ID: alice.ID}); err != nil {
		t.Fatal(err)
	}
	if err := s.RemoveMecha(&relay.RemoveMecha{At: time.Now(), Address: "bob^demo"}); err != nil {
		t.Fatal(err)
	}
	count := func() (keys, mechas int) {
		t.Helper()
		all, err := s.Keys(ctx, "")
		if err != nil {
			t.Fatal(err)
		}
		d := byHand(t, s.Path())
		defer d.Close()
		if err := d.QueryRow("SELECT count(*) FROM mecha").Scan(&mechas); err != nil {
			t.Fatal(err)
		}
		return len(all), mechas
	}
	s.mustPruneUnused(later())
	if keys, mechas := count(); keys != 3 || mechas != 3 {
		t.Errorf("with their messages: %d keys, %d Mechas", keys, mechas)
	}
	s.mustPruneAll(later())
	s.mustPruneUnused(later().Add(time.Hour))
	if keys, mechas := count(); keys != 1 || mechas != 2 {
		t.Errorf("without: %d keys, %d Mechas", keys, mechas)
	}
	if k := s.mustIssue("bob^demo"); k.Mecha.Number <= bob.Mecha.Number || k.Number <= bob.Number {
		t.Errorf("the number %d of a Mecha, or %d of a key, was given out again", k.Mecha.Number, k.Number)
	}
	s.Close()
	wantSound(t, s.Path())
}

// A removed Mecha goes with its last message, even from a conversation that continues. A
// Mecha that gets its address later takes no part in that conversation.
func TestARemovedMechaLeavesAConversationThatGoesOn(t *testing.T) {
	t.Parallel()
	s := mustOpen(t)
	alice, bob, carol := s.mustIssue("alice^demo"), s.mustIssue("bob^demo"), s.mustIssue("carol^demo")
	in := func(id relay.ConversationID) func(*relay.SendMessage) {
		return func(m *relay.SendMessage) { m.Conversation = id }
	}
	asked := s.mustSend(alice.Key, carol.Mecha.Address, `{}`)
	s.mustSend(alice.Key, bob.Mecha.Address, `{}`, in(asked.Conversation))
	if err := s.RemoveMecha(&relay.RemoveMecha{At: time.Now(), Address: bob.Mecha.Address}); err != nil {
		t.Fatal(err)
	}
	goesOn := s.mustSend(alice.Key, carol.Mecha.Address, `{}`, in(asked.Conversation))
	if out := s.mustPrune(goesOn.ID, 10); out.Messages != 2 {
		t.Fatalf("%d messages were removed", out.Messages)
	}
	s.mustPruneUnused(later().Add(time.Hour))
	d := byHand(t, s.Path())
	defer d.Close()
	var left int
	if err := d.QueryRow("SELECT count(*) FROM mecha WHERE id = ?", int64(bob.Mecha.Number)).Scan(&left); err != nil || left != 0 {
		t.Errorf("%d rows of the removed Mecha are left, %v", left, err)
	}
	again := s.mustIssue(bob.Mecha.Address)
	_, err := s.send(again.Key, carol.Mecha.Address, `{}`, in(asked.Conversation))
	wantCode(t, err, relay.NotAParticipant)
	s.mustSend(carol.Key, alice.Mecha.Address, `{}`, in(asked.Conversation))
	s.Close()
	wantSound(t, s.Path())
}

// A restored backup knows keys that have ended and were removed since. They are told, and
// ended again if that is wanted.
func TestARestoreKnowsOfRemovedKeys(t *testing.T) {
	t.Parallel()
	s := mustOpen(t)
	alice, bob := s.mustIssue("alice^demo"), s.mustIssue("bob^demo")
	s.mustIssue("last^demo")
	backup := filepath.Join(t.TempDir(), "backup.db")
	if _, err := file.Backup(ctx, file.BackupOptions{From: s.Path(), To: backup, Schema: schema(t)}); err != nil {
		t.Fatal(err)
	}
	for _, k := range []relay.IssuedKey{alice, bob} {
		if err := s.Revoke(&relay.RevokeKey{At: time.Now(), ID: k.ID}); err != nil {
			t.Fatal(err)
		}
	}
	s.mustSend(s.mustIssue("carol^demo").Key, "carol^demo", `{}`)
	s.mustPruneAll(later())
	s.mustPruneUnused(later())
	if all, err := s.Keys(ctx, "alice^demo"); err != nil || len(all) != 0 {
		t.Fatalf("%d keys are left, %v", len(all), err)
	}
	path := s.Path()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := file.Restore(ctx, file.RestoreOptions{BackupOptions: file.BackupOptions{From: backup, To: path, Schema: schema(t), Replace: true}, RevokeNewer: true})
	if err != nil || len(r.Revived) != 2 || r.Revived[0].ID != alice.ID || r.Revived[1].ID != bob.ID {
		t.Fatalf("%+v, %v", r.Revived, err)
	}
	s = mustOpen(t, func(o *db.Options) { o.Path, o.Create = path, false })
	_, err = s.Key(ctx, alice.Text)
	wantCode(t, err, relay.KeyRevoked)
}
