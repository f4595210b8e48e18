package db

import (
	"testing"
	"time"

	"relay/db/internal/mailbox"
	"relay/db/relay"
)

// Messages may be removed, with their priority's word, while their Mecha's inbox is
// counted in pieces. That is not damage.
func TestAPriorityMayBeRemovedWhileTheInboxIsCounted(t *testing.T) {
	d, c := openSetClock(t)
	k := mustIssue(t, d, "a^b")
	send := func(priority string, n int) {
		t.Helper()
		for range n {
			m := message(k, "a^b", `{}`)
			m.At, m.Priority = c.now(), priority
			if _, err := d.Send(m); err != nil {
				t.Fatal(err)
			}
		}
	}
	send("rare", mailbox.InboxRows)
	c.pass(2 * time.Hour)
	send("usual", 2)
	path := d.w.Path
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d = openHere(t, c.tells, func(o *Options) { o.Path = path }) // its cache of words is empty
	i := mailbox.NewInbox(k.Mecha.Number)
	count := func() {
		t.Helper()
		if err := d.w.As(0).Point(t.Context(), i.GoOn); err != nil {
			t.Fatal(err)
		}
	}
	count()
	for _, w := range []relay.Write{
		&relay.PruneMessages{At: c.now(), Before: relay.PositionAt(c.now().Add(-time.Hour)), Limit: 10},
		&relay.PruneUnused{At: c.now(), EmptySince: c.now(), Limit: 10},
	} {
		if _, err := d.Apply(w); err != nil {
			t.Fatal(err)
		}
	}
	if n := scalar(t, d, "SELECT count(*) FROM word WHERE text = 'rare'"); n != 0 {
		t.Fatal("the word is still there")
	}
	count()
	if !i.Done || i.ByPriority["rare"] != mailbox.InboxRows || i.ByPriority["usual"] != 2 {
		t.Errorf("%+v", i.Inbox)
	}
}
