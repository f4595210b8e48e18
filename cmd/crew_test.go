package cmd_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"relay/db/relay"
)

func TestAMessageToACrew(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	carol := issue(t, p.db, "carol^talk")[0]
	ids := parse[struct {
		MessageIDs []string `json:"message_ids"`
	}](t, p.ask(p.alice, "POST", "/api/v1/messages", `{"to":"*^talk","payload":{"n":1}}`).want(t, 201)).MessageIDs
	if len(ids) != 2 {
		t.Fatal(ids)
	}
	for i, a := range []agent{p.bob, carol} {
		if h := p.history(a, ""); len(h) != 1 || h[0].MessageID != ids[i] {
			t.Errorf("%s has %+v, want %s", a.Address, h, ids[i])
		}
	}
	p.ask(p.alice, "POST", "/api/v1/messages", `{"to":"*^other","payload":{}}`).wantProblem(t, 403, "broadcast_not_allowed")

	// A Mecha of no crew that it writes to needs a key for that, which the audit log tells.
	herald := issue(t, p.db, "herald^office", "--broadcast")[0]
	p.ask(herald, "POST", "/api/v1/messages", `{"to":"*^talk","payload":{}}`).want(t, 201)
	p.ask(issue(t, p.db, "herald^office")[0], "POST", "/api/v1/messages", `{"to":"*^talk","payload":{}}`).wantProblem(t, 403, "broadcast_not_allowed")
	next := agents(t, mustRelay(t, "key", "rotate", herald.KeyID, "--db", p.db, "--json"))[0]
	p.ask(next, "POST", "/api/v1/messages", `{"to":"*^talk","payload":{}}`).want(t, 201)
	list := mustRelay(t, "key", "list", "herald^office", "--db", p.db, "--json")
	if n := strings.Count(list, `"may_broadcast":true`); n != 2 || strings.Count(list, `"may_broadcast":false`) != 1 {
		t.Errorf("%s", list)
	}
	log := audit(t, p.db)
	if n := len(slices.DeleteFunc(slices.Clone(log), func(a relay.NotedAct) bool { return !strings.Contains(a.Detail, "may write to all crews") })); n != 2 {
		t.Errorf("%d of %+v", n, log)
	}
	runRefused(t, []string{"serve", "--max-broadcast", "1001", "--db", tempDB(t)}, nil).wantCode(t, 2, "--max-broadcast")
}

// A crew is sent messages while the server is killed: afterwards each message is there for
// all of the crew or for none, those with a 201 are there under its ids, and a retry gives
// them all.
func TestAMessageToACrewIsThereForAllOrNone(t *testing.T) {
	notShort(t)
	notOnWindows(t, "there is no kill -9")
	t.Parallel()
	const size, senders = 20, 4
	db := tempDB(t)
	var addresses []string
	for i := range size {
		addresses = append(addresses, fmt.Sprintf("m%d^crash", i))
	}
	crew := issue(t, db, addresses...)
	answered, tried := map[string][]string{}, map[string]int{} // ids by the Idempotency-Key; which sender it was
	body := func(key string) string { return fmt.Sprintf(`{"to":"*^crash","payload":{"n":%q}}`, key) }
	ask := func(s *server, who int, key string) (ids []string) {
		a, err := crew[who].request("POST", "/api/v1/messages", body(key), "Idempotency-Key", key).to(s.url)
		if err == nil && a.status == 201 {
			ids = parse[struct {
				MessageIDs []string `json:"message_ids"`
			}](t, a.body).MessageIDs
		}
		return ids
	}
	for round := range rounds(t, 1, 36) {
		s := startProcess(t, db, "--rate-limit", "0", "--max-pending", "0")
		ctx, kill := context.WithCancel(t.Context())
		var all sync.WaitGroup
		var mu sync.Mutex
		for who := range senders {
			all.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					key := fmt.Sprintf("%d-%d-%d", round, who, n)
					ids := ask(s, who, key)
					mu.Lock()
					tried[key] = who
					if ids != nil {
						answered[key] = ids
					}
					mu.Unlock()
				}
			})
		}
		eventually(t, patience, "messages are accepted", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(answered) >= 20*(round+1)
		})
		time.Sleep(rand.N(3 * time.Millisecond)) // not just after a commit: at any moment
		s.kill()
		kill()
		all.Wait()
	}
	wantWhole(t, db)
	s := startServer(t, db, "--rate-limit", "0", "--max-pending", "0")
	got := map[string][]string{} // ids by the text of the payload, in the order of the recipients
	for i, a := range crew {
		for _, m := range s.history(a, "direction=in&include=payload") {
			var p struct{ N string }
			if err := json.Unmarshal(m.Payload, &p); err != nil || tried[p.N] == i {
				t.Fatalf("%s has %+v, %v", a.Address, m, err)
			}
			got[p.N] = append(got[p.N], m.MessageID)
		}
	}
	unknown := 0
	for key, who := range tried {
		ids, there := answered[key], got[key]
		if n := len(there); n != 0 && n != size-1 || ids != nil && !slices.Equal(ids, there) {
			t.Errorf("%s: %d Mechas have it; the answer had %d ids", key, n, len(ids))
		}
		if ids == nil && there != nil {
			unknown++
		}
		if again := ask(s, who, key); len(again) != size-1 || there != nil && !slices.Equal(again, there) {
			t.Errorf("%s: a retry gives %d ids", key, len(again))
		}
	}
	t.Logf("%d messages to a crew of %d, %d with a 201; of the others %d were there", len(tried), size, len(answered), unknown)
}
