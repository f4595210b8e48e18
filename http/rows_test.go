package http_test

import (
	"strconv"
	"sync"
	"testing"
	"time"

	"relay/db/relay"
)

// The rows that a page looks through count against the rate of its key: a loop of pages
// that match nothing ends in 429, with the time until the key may continue. A short page
// costs what any request does.
func TestRowsCountAgainstTheRate(t *testing.T) {
	t.Parallel()
	r := mustServe(t, func(s *settings) { s.api.RateLimit, s.api.RateBurst = 2, 30 })
	alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
	r.mustFill(alice, alice, 2001)
	search := historyPath(alice) + "?message_type=normal&limit=1" // a word that is in use, as a priority
	alice.get(search).want(200)                                   // 1 and 20
	alice.get(historyPath(alice)).want(200)                       // 1
	alice.get(historyPath(alice) + "?limit=301").want(200)        // 1 and 3
	alice.get(inboxPath(alice)).want(200)                         // 1 and 2, since counting costs less
	alice.get(whoami).want(200)                                   // 1
	alice.get(search).wantProblem(429, relay.RateLimited)
	bob.get(whoami).want(200)

	r.clock.advance(time.Second) // 2 more, for one search with a debt of 18
	alice.get(search).want(200)
	refused := alice.get(search)
	refused.wantProblem(429, relay.RateLimited)
	wait, err := strconv.Atoi(refused.header.Get("Retry-After"))
	if err != nil || wait != 10 {
		t.Errorf("Retry-After: %s", refused.header.Get("Retry-After"))
	}
	r.clock.advance(time.Duration(wait-1) * time.Second)
	alice.get(whoami).wantProblem(429, relay.RateLimited)
	r.clock.advance(time.Second)
	alice.get(whoami).want(200)
}

// A claim counts as one request for each message that it takes.
func TestClaimedMessagesCountAgainstTheRate(t *testing.T) {
	t.Parallel()
	r := mustServe(t, func(s *settings) { s.api.RateLimit, s.api.RateBurst = 1, 30 })
	alice := r.mustIssue("alice^demo")
	r.mustFill(alice, alice, 100)
	if got := alice.claim(`{"limit":29}`); len(got) != 29 {
		t.Fatalf("%d messages", len(got))
	}
	alice.get(whoami).want(200)
	alice.get(whoami).wantProblem(429, relay.RateLimited)
}

// A trace counts as the rows of its steps: a hundred words of progress cost three requests more.
func TestStepsOfATraceCountAgainstTheRate(t *testing.T) {
	t.Parallel()
	r := mustServe(t, func(s *settings) { s.api.RateLimit, s.api.RateBurst = 1000, 1000 })
	alice := r.mustIssue("alice^demo")
	sent := alice.mustSend(alice)
	for range 100 {
		alice.mustAck(sent.MessageID, "processing")
	}
	r.clock.advance(time.Minute) // the burst is whole again
	traces := 0
	for ; alice.get(messagePath(sent.MessageID)+"/trace").status == 200; traces++ {
	}
	if traces < 200 || traces > 300 {
		t.Errorf("%d traces", traces)
	}
}

// Many pages at once end in 429, too, whether they wait for their turn or not.
func TestManySearchesAtOnceAreRefused(t *testing.T) {
	t.Parallel()
	r := mustServe(t, func(s *settings) { s.api.RateLimit, s.api.RateBurst = 1, 200 })
	alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
	r.mustFill(alice, alice, 1001) // each page costs 11
	id := bob.mustSend(bob).MessageID
	var wg sync.WaitGroup
	var mu sync.Mutex
	got := map[int]int{}
	for range 24 {
		wg.Go(func() {
			for range 5 {
				a, err := r.try(alice.prepare("GET", historyPath(alice)+"?message_type=normal&limit=1", ""))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				got[a.status]++
				mu.Unlock()
				if a.status == 429 && a.header.Get("Retry-After") == "" {
					t.Error("no Retry-After")
				}
			}
		})
	}
	bob.get(messages + "/" + id).want(200)
	wg.Wait()
	if got[200] > 200/11+24 || got[200]+got[429] != 24*5 {
		t.Errorf("the answers are %v", got)
	}
}

// A send to an address that does not exist compares many others for its suggestions.
func TestSuggestionsCountAgainstTheRate(t *testing.T) {
	t.Parallel()
	r := mustServe(t, func(s *settings) { s.api.RateLimit, s.api.RateBurst = 1, 10 })
	alice := r.mustIssue("alice^demo")
	var wg sync.WaitGroup
	for i := range 401 {
		wg.Add(1)
		p := &relay.PutProfile{At: r.clock.Now(), Address: relay.Address("bob" + strconv.Itoa(i) + "^demo"), Register: true}
		r.db.PutProfileThen(p, func(err error) {
			defer wg.Done()
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	alice.post(messages, `{"to":"bob^demo","payload":{}}`).wantProblem(404, relay.RecipientNotFound) // 1, and 8 for two times 401
	alice.get(whoami).want(200)
	alice.get(whoami).wantProblem(429, relay.RateLimited)
}

// A long-poll whose filter matches nothing looks at its range once, and then only at what
// is new. One for a state that older messages may still come to looks at them again, at
// the pace that the key's rate allows.
func TestALongPollLooksAtWhatIsNew(t *testing.T) {
	t.Parallel()
	r := mustServe(t, func(s *settings) { s.api.RateLimit, s.api.RateBurst = 1, 30 })
	alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
	r.mustFill(bob, alice, 1001)
	bob.mustSend(bob, `"message_type":"wanted"`)    // a word that no message has needs no search
	answer := alice.mustWait("message_type=wanted") // 1 and 10
	for range 10 {
		bob.mustSend(alice)
	}
	wanted := bob.mustSend(alice, `"message_type":"wanted"`).MessageID
	wantPage(t, answer, wanted)
	for range 19 {
		alice.get(whoami).want(200)
	}
	alice.get(whoami).wantProblem(429, relay.RateLimited)
}
