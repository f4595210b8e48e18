package http_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

// Many large sends of one Mecha at once, some with one Idempotency-Key, all get their
// answers, and another Mecha gets its own meanwhile.
func TestManyLargeBodiesOfOneMecha(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob, carol := r.mustIssue("alice^demo"), r.mustIssue("bob^demo"), r.mustIssue("carol^demo")
	body := fmt.Sprintf(`{"to":%q,"payload":{"t":%q}}`, bob.Mecha.Address, strings.Repeat("x", 900_000))
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			var more []change
			if i%2 == 0 {
				more = append(more, idempotent(fmt.Sprint("k", i%8)))
			}
			alice.post(messages, body, more...).want(201)
		})
	}
	for range 10 {
		carol.get(whoami).want(200)
	}
	wg.Wait()
	r.wantMessages(16 + 4)
}
