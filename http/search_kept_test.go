package http_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"relay/db/relay"
)

// noRoom makes the disk count as full from the start.
func noRoom(s *settings) { s.db.MinFreeDisk = 1 << 60 }

// longAnswers fills the directory so that an answer to zzyzx has a MiB and more.
func (r *testRelay) longAnswers() {
	r.t.Helper()
	long := relay.Profile{Description: "zzyzx " + strings.Repeat("\U0001F680", 1990), Visibility: relay.Public}
	for i := range 64 {
		long.Tags = append(long.Tags, strings.Repeat("\U0001F680", 60)+string(rune('A'+i)))
	}
	for i := range 100 {
		if err := r.db.PutProfile(&relay.PutProfile{At: r.clock.Now(), Address: relay.Address(fmt.Sprintf("long%d^acme", i)), Register: true, Profile: long.Stored()}); err != nil {
			r.t.Fatal(err)
		}
	}
	r.mustIndex()
}

// mustAskLong searches for zzyzx and gives where the answer stands. On a busy machine the
// relay may not read it all in time; the search is then made again, as Retry-After says.
func (m mecha) mustAskLong() string {
	m.r.t.Helper()
	var f found
	for end := time.Now().Add(patience); ; {
		a := m.post(searches, `{"query":"zzyzx","limit":100}`)
		if a.status == 503 && time.Now().Before(end) {
			continue
		}
		a.want(202).into(&f)
		return f.ResultURL
	}
}

// An answer that cannot be written was promised anyway: this process keeps it.
func TestASearchIsAnsweredWithoutADisk(t *testing.T) {
	t.Parallel()
	r := mustServe(t, noRoom)
	alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
	r.mustIssue("hotels^acme").put(`{"description":"finds hotel rooms"}`).want(200)
	r.mustIndex()
	alice.post(messages, letter(bob)).wantProblem(507, relay.DiskFull)
	var f found
	alice.post(searches, `{"query":"hotel"}`).want(202).into(&f)
	r.mustIssue("carol^demo") // the writer has had its turn
	var first found
	text := string(alice.get(f.ResultURL).want(200).body)
	alice.get(f.ResultURL).into(&first)
	if got := first.addresses(); len(got) != 1 || got[0] != "hotels^acme" {
		t.Errorf("found %v", got)
	}
	bob.get(f.ResultURL).wantProblem(403, relay.NotYourSearch)
	r.clock.advance(59 * time.Minute)
	if again := string(alice.get(f.ResultURL).want(200).body); again != text {
		t.Errorf("the answer changed from\n%s to\n%s", text, again)
	}
	r.clock.advance(time.Minute)
	alice.get(f.ResultURL).wantProblem(410, relay.SearchExpired)
	bob.get(f.ResultURL).wantProblem(403, relay.NotYourSearch)

	// Nothing was written, so nothing outlives the process.
	alice.post(searches, `{"query":"hotel"}`).want(202).into(&f)
	r.settings.db.MinFreeDisk = 0
	r.mustRestart()
	alice.r = r
	alice.get(f.ResultURL).wantProblem(404, relay.SearchNotFound)
	alice.post(searches, `{"query":"hotel"}`).want(202).into(&f)
	r.mustRestart()
	alice.r = r
	alice.get(f.ResultURL).want(200)
}

// The answers that this process keeps are bounded: the oldest go, and no search is
// refused for them.
func TestAnswersWithoutADiskAreBounded(t *testing.T) {
	t.Parallel()
	r := mustServe(t, noRoom)
	alice := r.mustIssue("alice^demo")
	r.longAnswers()
	var urls []string
	for i := range 34 { // of 2.3 MiB each: 28 are held
		urls = append(urls, alice.mustAskLong())
		r.mustIssue(relay.Address(fmt.Sprintf("turn%d^demo", i))) // the writer has had its turn
	}
	alice.get(urls[0]).wantProblem(404, relay.SearchNotFound)
	alice.get(urls[len(urls)-1]).want(200)
	held := 0
	for _, u := range urls {
		if a := alice.get(u); a.status == 200 {
			held += len(a.body)
		}
	}
	if held > 64<<20 || held < 60<<20 {
		t.Errorf("%d bytes are held", held)
	}
}
