package cmd_test

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

type pruned struct {
	Messages int64
	Kept     int64
	DryRun   bool `json:"dry_run"`
}

// relay prune removes what is old, next to a server and without one. A removed message is
// 404, and continues working as a cursor.
func TestPruneRemovesOldMessages(t *testing.T) {
	t.Parallel()
	db := tempDB(t)
	all := issue(t, db, "alice^x", "bob^x")
	alice, bob := all[0], all[1]
	s := startServer(t, db)
	var ids []string
	for i := range 20 {
		ids = append(ids, s.send(alice, bob.Address, fmt.Sprintf(`{"n":%d}`, i)).MessageID)
	}
	eventually(t, patience, "they are old enough", func() bool {
		r := parse[pruned](t, []byte(mustRelay(t, "prune", "--older-than", "1s", "--dry-run", "--db", db, "--json")))
		return r.DryRun && r.Messages == 20 && r.Kept == 0
	})
	if n := len(s.history(bob, "direction=in")); n != 20 {
		t.Errorf("after a dry run %d are left", n)
	}
	if r := parse[pruned](t, []byte(mustRelay(t, "prune", "--older-than", "1s", "--db", db, "--json"))); r.Messages != 20 || r.DryRun {
		t.Errorf("%+v", r)
	}
	next := s.send(alice, bob.Address, `{"n":20}`).MessageID
	for _, cursor := range []string{ids[0], ids[19]} {
		if got := s.history(bob, "direction=in&since_message_id="+cursor); len(got) != 1 || got[0].MessageID != next {
			t.Errorf("after %s: %+v", cursor, got)
		}
	}
	s.end()
	runRelay(t, "prune", "--db", db).wantCode(t, 2, "--older-than is required")
	runRelay(t, "prune", "--older-than", "1ms", "--db", db).wantCode(t, 2, "--older-than is required")
	eventually(t, patience, "the last is old enough", func() bool {
		return parse[pruned](t, []byte(mustRelay(t, "prune", "--older-than", "1s", "--db", db, "--json"))).Messages == 1
	})
	wantWhole(t, db)
	wantWhats(t, audit(t, db), "key create: key_issued", "key create: key_issued", "prune: prune_begun", "prune: messages_pruned", "prune: prune_begun", "prune: messages_pruned")

	// The audit log also has what a server removes on its own: in the end when it stops.
	s = startServer(t, db, "--retention", "1s")
	s.send(alice, bob.Address, `{}`)
	eventually(t, patience, "it is gone", func() bool { return len(s.history(bob, "direction=in")) == 0 })
	s.end()
	if last := audit(t, db)[6:]; len(last) == 0 || last[0].By.Command != "serve" || last[0].What != "messages_pruned" || !strings.HasPrefix(last[0].Detail, "1 messages by their age") {
		t.Errorf("%+v", last)
	}
}

// A server that removes messages by their age, and for a command at the same time, is
// killed over and over while it takes new ones. The file is whole after every kill, and no
// id comes twice.
func TestCrashKilledWhileItRemovesMessages(t *testing.T) {
	notOnWindows(t, "there is no kill -9")
	t.Parallel()
	db := tempDB(t)
	all := issue(t, db, crowd(6)...)
	var mu sync.Mutex
	issued := map[string]bool{}
	last := ""
	removed := false
	for round := range rounds(t, 1, 47) {
		s := startProcess(t, db, "--rate-limit", "0", "--max-pending", "0", "--retention", "1s", "--keep-expired", "1s")
		var traffic sync.WaitGroup
		for n, from := range all {
			traffic.Go(func() { // until the server is gone
				for i := 0; ; i++ {
					body := fmt.Sprintf(`{"to":%q,"payload":{"text":%q},"message_type":"type-%d","ttl_seconds":%d}`, all[(n+i)%len(all)].Address, strings.Repeat("x", i%5000), i, 1+i%3)
					ans, err := from.request("POST", "/api/v1/messages", body).to(s.url)
					if err != nil || ans.status != 201 {
						return
					}
					id := parse[record](t, ans.body).MessageID
					mu.Lock()
					if issued[id] {
						t.Errorf("%s came twice", id)
					}
					issued[id], last = true, max(last, id)
					mu.Unlock()
				}
			})
		}
		ask := launch(t, exec.Command(binary, "prune", "--older-than", "1s", "--db", db), nil)
		count := func() int {
			mu.Lock()
			defer mu.Unlock()
			return len(issued)
		}
		enough := count() + 300
		eventually(t, patience, "messages", func() bool { return count() > enough })
		if round%2 == 0 {
			eventually(t, patience, "something is removed", func() bool {
				removed = removed || strings.Contains(s.stderr.String(), "were removed")
				return removed
			})
		}
		time.Sleep(rand.N(20 * time.Millisecond)) // at any moment
		s.kill()
		traffic.Wait()
		wantWhole(t, db)
		ask.kill()
	}
	s := startProcess(t, db) // which removes nothing on its own, however late the messages are read
	fresh := s.send(all[0], all[1].Address, `{"fresh":true}`).MessageID
	if issued[fresh] || fresh <= last {
		t.Errorf("%s was issued after %s", fresh, last)
	}
	if got := s.history(all[1], "direction=in&since_message_id="+last); len(got) == 0 || got[len(got)-1].MessageID != fresh { // others may have had no answer
		t.Errorf("after the last: %+v", got)
	}
	wantWhole(t, db)
	t.Logf("%d messages", len(issued))
}
