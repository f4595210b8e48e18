package db_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"relay/db"
	"relay/db/look"
	"relay/db/relay"
)

func (s store) profile(a relay.Address, text string) error {
	s.t.Helper()
	p, err := relay.ReadProfile([]byte(text))
	if err != nil {
		s.t.Fatal(err)
	}
	return s.PutProfile(&relay.PutProfile{At: time.Now(), Address: a, Profile: p.Stored()})
}

func (s store) mustProfile(a relay.Address, text string) {
	s.t.Helper()
	if err := s.profile(a, text); err != nil {
		s.t.Fatal(err)
	}
}

func (s store) mustEntry(a relay.Address) relay.Entry {
	s.t.Helper()
	in := s.inspector()
	defer in.Close()
	e, err := in.Entry(a)
	if err != nil {
		s.t.Fatal(err)
	}
	return e
}

func (s store) inspector() *look.Inspector {
	s.t.Helper()
	in, err := look.Inspect(s.Path())
	if err != nil {
		s.t.Fatal(err)
	}
	return in
}

// directory returns the directory behind an address.
func (s store) directory(after relay.Address) []relay.Entry {
	s.t.Helper()
	in := s.inspector()
	defer in.Close()
	all, err := in.Directory(after, 10)
	if err != nil {
		s.t.Fatal(err)
	}
	return all
}

func (s store) mustRemove(a relay.Address) {
	s.t.Helper()
	if err := s.RemoveMecha(&relay.RemoveMecha{At: time.Now(), Address: a}); err != nil {
		s.t.Fatal(err)
	}
}

// changes reads the entries that changed after a revision, in pages of one, as
// address:display_name.
func (s store) changes(after int64) (all []string, upto int64) {
	s.t.Helper()
	for {
		page, err := s.EntriesAfter(ctx, after, 1)
		if err != nil {
			s.t.Fatal(err)
		}
		if len(page) == 0 {
			return all, after
		}
		e := page[0]
		if e.Revision <= after {
			s.t.Fatalf("revision %d comes after %d", e.Revision, after)
		}
		after = e.Revision
		text := string(e.Address) + ":" + e.DisplayName
		if e.Removed {
			text += "removed"
		}
		all = append(all, text)
	}
}

// wantChange expects that OnEntries has called; it may call more than once.
func wantChange(t *testing.T, changed chan struct{}) {
	t.Helper()
	select {
	case <-changed:
	case <-time.After(time.Minute):
		t.Fatal("OnEntries has not called")
	}
}

func TestEveryChangeOfAnEntryAppears(t *testing.T) {
	s := mustOpen(t)
	changed := make(chan struct{}, 1)
	s.OnEntries(func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	at := int64(0)
	want := func(entries ...string) {
		t.Helper()
		wantChange(t, changed)
		var got []string
		if got, at = s.changes(at); !slices.Equal(got, entries) {
			t.Errorf("changed: %v, want %v", got, entries)
		}
	}
	alice := s.mustIssue("alice^x")
	want("alice^x:")
	s.mustIssue("bob^x")
	want("bob^x:")
	s.mustProfile("alice^x", `{"display_name":"A"}`)
	want("alice^x:A")
	s.mustProfile("bob^x", `{"display_name":"B"}`)
	want("bob^x:B")
	s.mustProfile("alice^x", `{"display_name":"A2","card":{"version":"7"}}`)
	want("alice^x:A2")
	s.mustRemove("bob^x")
	want("bob^x:removed")
	s.mustIssue("bob^x")
	want("bob^x:")
	if got, _ := s.changes(0); !slices.Equal(got, []string{"alice^x:A2", "bob^x:"}) {
		t.Errorf("all: %v", got)
	}
	s.mustSend(alice.Key, "bob^x", `{}`)
	if got, _ := s.changes(at); got != nil {
		t.Errorf("a message changed %v", got)
	}
	wantCode(t, s.profile("carol^x", `{}`), relay.MechaNotFound)
	wantCode(t, s.profile("ALICE^x", `{}`), relay.MechaNotFound)
	wantCode(t, s.PutProfile(&relay.PutProfile{At: time.Now(), Address: "ALICE^x", Register: true}), relay.InvalidAddress)

	e := s.mustEntry("alice^x")
	if string(e.Card) != `{"version":"7"}` || e.Version != "7" || e.Number != alice.Mecha.Number || e.Removed || e.UpdatedAt.Before(e.CreatedAt) {
		t.Errorf("%+v", e)
	}
	some, err := s.Entries(ctx, 0, []relay.MechaNumber{alice.Mecha.Number, 99})
	if err != nil || len(some) != 1 || some[0].DisplayName != "A2" || some[0].Card != nil {
		t.Errorf("%+v, %v", some, err)
	}
	if page := s.directory("alice^x"); len(page) != 1 || page[0].Address != "bob^x" {
		t.Errorf("%+v", page)
	}
}

// Another process changes entries of the file that this one serves.
func TestAnotherProcessChangesAnEntry(t *testing.T) {
	t.Parallel()
	s := mustOpen(t)
	alice := s.mustIssue("alice^x")
	changed := make(chan struct{}, 1)
	s.OnEntries(func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	_, at := s.changes(0)
	other := mustOpen(t, func(o *db.Options) { o.Path, o.Create, o.Serve = s.Path(), false, false })
	s.mustProfile("alice^x", `{"display_name":"mine"}`)
	wantChange(t, changed)
	if err := other.PutProfile(&relay.PutProfile{At: time.Now().Add(-time.Hour), Address: "bob^x", Register: true}); err != nil {
		t.Fatal(err)
	}
	if got, _ := s.changes(at); !slices.Equal(got, []string{"alice^x:mine", "bob^x:"}) { // though its clock is behind
		t.Errorf("changed: %v", got)
	}
	wantChange(t, changed)
	s.mustSend(alice.Key, "bob^x", `{}`)
	_, at = s.changes(0)
	other.mustRemove("bob^x")
	if got, _ := s.changes(at); !slices.Equal(got, []string{"bob^x:removed"}) {
		t.Errorf("changed: %v", got)
	}
	for { // until OnEntries calls, the writer may remember bob^x
		_, err := s.send(alice.Key, "bob^x", `{}`)
		if err != nil {
			wantCode(t, err, relay.RecipientNotFound)
			return
		}
		wantChange(t, changed)
	}
}

func TestAMechaIsRemovedAndComesBack(t *testing.T) {
	s := mustOpen(t)
	alice, bob := s.mustIssue("alice^x"), s.mustIssue("bob^x")
	id := s.mustSend(alice.Key, "bob^x", `{"n":1}`).ID
	back := s.mustSend(bob.Key, "alice^x", `{"n":2}`).ID
	s.mustProfile("bob^x", `{"display_name":"Bob","visibility":"unlisted"}`)

	s.mustRemove("bob^x")
	_, err := s.send(alice.Key, "bob^x", `{}`)
	wantCode(t, err, relay.RecipientNotFound)
	_, err = s.Key(ctx, bob.Text)
	wantCode(t, err, relay.KeyRevoked)
	_, err = s.Entry(ctx, "bob^x", relay.Mecha{})
	wantCode(t, err, relay.MechaNotFound)
	wantCode(t, s.profile("bob^x", `{}`), relay.MechaNotFound)
	wantCode(t, s.RemoveMecha(&relay.RemoveMecha{At: time.Now(), Address: "bob^x"}), relay.MechaNotFound)
	wantCode(t, s.RemoveMecha(&relay.RemoveMecha{At: time.Now(), Address: "Alice^x"}), relay.MechaNotFound)
	if all := s.directory(""); len(all) != 1 || all[0].Address != "alice^x" {
		t.Errorf("the directory has %+v", all)
	}
	if some, err := s.Entries(ctx, 0, []relay.MechaNumber{bob.Mecha.Number}); err != nil || len(some) != 0 {
		t.Errorf("%+v, %v", some, err)
	}
	p := s.mustHistory(relay.HistoryQuery{Mecha: alice.Mecha.Number, Peer: "bob^x"})
	if len(p.Messages) != 2 || p.Messages[0].To != "bob^x" || p.Messages[1].From != "bob^x" {
		t.Errorf("history %+v", p.Messages)
	}
	if body, err := s.Payload(ctx, alice.Mecha.Number, back); err != nil || string(body) != `{"n":2}` {
		t.Errorf("%s, %v", body, err)
	}

	again := s.mustIssue("bob^x")
	if again.Mecha.Number != bob.Mecha.Number {
		t.Errorf("it came back as another Mecha: %+v", again.Mecha)
	}
	if e := s.mustEntry("bob^x"); e.DisplayName != "" || e.Visibility != relay.Public {
		t.Errorf("its old profile came back: %+v", e)
	}
	if body, err := s.Payload(ctx, again.Mecha.Number, id); err != nil || string(body) != `{"n":1}` {
		t.Errorf("%s, %v", body, err)
	}
	s.mustSend(alice.Key, "bob^x", `{}`)
	s.mustAck(again.Key, id, "completed")
	_, err = s.Key(ctx, bob.Text)
	wantCode(t, err, relay.KeyRevoked)
}

func TestVisibility(t *testing.T) {
	s := mustOpen(t)
	viewer := map[string]*relay.Key{"same crew": s.mustIssue("me^acme").Key, "other crew": s.mustIssue("you^other").Key}
	for _, v := range []string{"public", "crew", "unlisted"} {
		s.mustIssue(relay.Address(v + "^acme"))
		s.mustProfile(relay.Address(v+"^acme"), `{"visibility":"`+v+`"}`)
	}
	s.mustIssue("silent^acme") // has no profile
	for _, c := range []struct {
		viewer, of       string
		exists, suggests bool
	}{
		{"same crew", "public", true, true}, {"other crew", "public", true, true},
		{"same crew", "silent", true, true}, {"other crew", "silent", true, true},
		{"same crew", "crew", true, true}, {"other crew", "crew", false, false},
		{"same crew", "unlisted", true, false}, {"other crew", "unlisted", true, false},
	} {
		k, a := viewer[c.viewer], relay.Address(c.of+"^acme")
		e, err := s.Entry(ctx, a, k.Mecha)
		if (err == nil) != c.exists || err == nil && e.Address != a || err != nil && relay.ErrorCode(err) != relay.MechaNotFound {
			t.Errorf("%s looks at %s: %+v, %v", c.viewer, a, e, err)
		}
		_, err = s.send(k, relay.Address(c.of+"x^acme"), `{}`)
		wantCode(t, err, relay.RecipientNotFound)
		var refused *relay.Error
		if errors.As(err, &refused); slices.Contains(refused.DidYouMean, a) != c.suggests {
			t.Errorf("%s is told of %v, and means %s", c.viewer, refused.DidYouMean, a)
		}
	}
	s.mustRemove("public^acme")
	_, err := s.send(viewer["same crew"], "publicx^acme", `{}`)
	var refused *relay.Error
	if errors.As(err, &refused); len(refused.DidYouMean) != 0 {
		t.Errorf("a removed Mecha is suggested: %v", refused)
	}
}

// A captured PUT must not bring an older profile back, not even after a restart
// and when others have been put since.
func TestTheNonceOfAProfileHoldsOverARestart(t *testing.T) {
	s := mustOpen(t)
	k := s.mustIssue("alice^x")
	s.mustIssue("bob^x")
	for _, nonce := range []string{"first", "second"} {
		h, err := s.Claim(k.Key, nonce, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if err := s.PutProfile(&relay.PutProfile{At: time.Now(), Address: "alice^x", Nonce: h}); err != nil {
			t.Fatal(err)
		}
	}
	s.mustProfile("alice^x", `{"display_name":"by hand"}`)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again := mustOpen(t, func(o *db.Options) { o.Path, o.Create = s.Path(), false })
	for _, nonce := range []string{"first", "second"} {
		_, err := again.Claim(k.Key, nonce, time.Now())
		wantCode(t, err, relay.NonceReused)
	}
	if _, err := again.Claim(k.Key, "third", time.Now()); err != nil {
		t.Error(err)
	}
}

func TestLastSeen(t *testing.T) {
	clock := newClock()
	s := mustOpen(t, clock.option)
	k, never := s.mustIssue("alice^x"), s.mustIssue("bob^x")
	want := func(s store, id relay.MechaNumber, at time.Time) {
		t.Helper()
		if got, err := s.LastSeen(ctx, 0, id); err != nil || !got.Equal(at) {
			t.Errorf("last seen %v, %v; want %v", got, err, at)
		}
	}
	want(s, k.Mecha.Number, time.Time{})
	for range 2 {
		clock.advance(time.Second)
		if _, err := s.Key(ctx, k.Text); err != nil {
			t.Fatal(err)
		}
		want(s, k.Mecha.Number, clock.now())
	}
	seen := clock.now()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	clock.advance(time.Hour)
	s = mustOpen(t, clock.option, func(o *db.Options) { o.Path, o.Create = s.Path(), false })
	want(s, k.Mecha.Number, seen)
	want(s, never.Mecha.Number, time.Time{})
}

// Entries that were read before equal the file's, even when another process has changed the file since.
func TestEntriesAreThoseOfTheFile(t *testing.T) {
	t.Parallel()
	s := mustOpen(t)
	id := s.mustIssue("alice^x").Mecha.Number
	s.mustIssue("last^x")
	beside := mustOpen(t, func(o *db.Options) { o.Path, o.Create, o.Serve = s.Path(), false, false }) // a command
	read := func() string {
		t.Helper()
		some, err := s.Entries(ctx, 0, []relay.MechaNumber{id})
		if err != nil || len(some) > 1 {
			t.Fatalf("%+v, %v", some, err)
		}
		if len(some) == 0 {
			return "none"
		}
		return some[0].DisplayName
	}
	for _, change := range []struct {
		make func()
		want string
	}{
		{func() {}, ""},
		{func() { s.mustProfile("alice^x", `{"display_name":"A"}`) }, "A"},
		{func() { beside.mustProfile("alice^x", `{"display_name":"B"}`) }, "B"},
		{func() { s.mustRemove("alice^x") }, "none"},
		{func() { beside.mustIssue("alice^x") }, ""},
	} {
		change.make()
		for range 2 {
			if got := read(); got != change.want {
				t.Errorf("got %q, want %q", got, change.want)
			}
		}
	}
}
