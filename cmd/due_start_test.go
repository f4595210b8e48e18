package cmd_test

import (
	"fmt"
	"testing"
	"time"
)

// Times that come while no server runs are acted on at the next start: the end of a lease and
// of a deferral, ack_by, and expiry. It is the same whether they came because time passed
// while the server was away after a kill, or because the clock was set forward.
func TestWhatCameDueWithoutAServerComesAtTheStart(t *testing.T) {
	notShort(t)
	t.Parallel()
	for _, c := range []struct {
		name    string
		seconds int
		pass    func(t *testing.T, db string, due time.Time)
	}{
		{"time passes", 5, func(t *testing.T, _ string, due time.Time) {
			eventually(t, patience, "everything is due", func() bool { return time.Now().After(due) })
		}},
		{"the clock is set forward", 3600, func(t *testing.T, db string, _ time.Time) { setBack(t, db, 2*time.Hour) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := startProcess(t, tempDB(t))
			k := issue(t, s.db, "alice^due", "bob^due")
			alice, bob := k[0], k[1]
			send := func(more string) string {
				t.Helper()
				return parse[record](t, s.ask(alice, "POST", "/api/v1/messages", `{"to":"bob^due","payload":{}`+more+`}`).want(t, 201)).MessageID
			}
			leased := send("")
			s.ask(bob, "POST", "/api/v1/mecha/bob^due/claim", fmt.Sprintf(`{"lease_seconds":%d,"worker":"w"}`, c.seconds)).want(t, 200)
			deferred, late, old := send(""), send(fmt.Sprintf(`,"ack_by_seconds":%d`, c.seconds)), send(fmt.Sprintf(`,"ttl_seconds":%d`, c.seconds))
			s.ask(bob, "POST", "/api/v1/messages/"+deferred+"/ack", fmt.Sprintf(`{"status":"deferred","retry_after_seconds":%d,"client_ts":"2026-01-01T00:00:00Z"}`, c.seconds)).want(t, 200)
			due := time.Now().Add(time.Duration(c.seconds) * time.Second)
			s.kill()
			c.pass(t, s.db, due)

			s = startServer(t, s.db)
			started := time.Now()
			for id, want := range map[string]string{
				leased:   "accepted, claimed, returned",
				deferred: "accepted, progress deferred, returned",
				late:     "accepted, overdue",
				old:      "accepted, expired",
			} {
				eventually(t, patience, "it comes: "+want, func() bool { return s.trace(alice, id).steps() == want })
				steps := s.trace(alice, id).Steps
				at, err := time.Parse(time.RFC3339, steps[len(steps)-1].At)
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("%s: %v after the start", want, at.Sub(started).Round(time.Millisecond))
			}
			if got := s.ask(bob, "POST", "/api/v1/mecha/bob^due/claim", `{"limit":10}`).want(t, 200); parse[struct{ Messages []struct{ Attempt int } }](t, got).Messages[0].Attempt != 2 {
				t.Errorf("claimed again: %s", got)
			}
		})
	}
}

// setBack moves all times that are to come in the file of a server that is not running. To
// the next server it is as if the clock had been set forward.
func setBack(t *testing.T, db string, by time.Duration) {
	t.Helper()
	d := byHand(t, db)
	defer d.Close()
	for _, table := range []struct{ name, column string }{{"attempt", "until"}, {"message", "ack_by"}, {"message", "expires_at"}} {
		r, err := d.Exec(fmt.Sprintf("UPDATE %s SET %s = %[2]s - ? WHERE %[2]s IS NOT NULL", table.name, table.column), by.Milliseconds())
		if err != nil {
			t.Fatal(err)
		}
		if n, err := r.RowsAffected(); err != nil || n == 0 {
			t.Fatalf("%s has no %s: %v", table.name, table.column, err)
		}
	}
}
