package console_test

import (
	"context"
	"fmt"
	"html"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"relay/db/relay"
	"relay/http/console"
	"relay/search"
)

// play adds to a story what the views of Mechas, conversations, the directory and the keys show.
type play struct {
	*story
	dave, erin relay.IssuedKey
	talk       relay.ConversationID // of five Mechas
	index      *search.Index
	held       *relay.Message // a worker of dave holds it
}

func mustPlay(t testing.TB, live bool, options ...func(*console.Config)) *play {
	t.Helper()
	p := &play{}
	p.story = mustBegin(t, live, append(options, func(c *console.Config) {
		if live {
			c.Search = func(ctx context.Context, q relay.SearchRequest) (*relay.SearchResult, error) {
				return p.index.Search(ctx, q)
			}
		}
	})...)
	p.dave, p.erin = p.mustIssue("dave^demo", "mill"), p.mustIssue("erin^lab", "nightly")
	p.mustIssue("frank^lab", "never started")
	for _, k := range []relay.IssueKey{{Address: "bob^demo", Label: "backup", ExpiresAt: time.Now().Add(3 * 24 * time.Hour)}, {Address: "erin^lab", Label: "old laptop"}} {
		k.At = time.Now().Add(-40 * 24 * time.Hour)
		issued, err := p.Issue(&k)
		if err != nil {
			t.Fatal(err)
		}
		if k.Label == "old laptop" {
			if err := p.Revoke(&relay.RevokeKey{At: time.Now().Add(-100 * time.Minute), ID: issued.ID}); err != nil {
				t.Fatal(err)
			}
		}
	}
	p.mustSee(50*time.Minute, p.bob)
	p.mustSee(time.Minute, p.carol)
	p.mustSee(90*time.Minute, p.dave)
	p.mustPut("bob^demo", `{"display_name":"Warehouse","description":"Knows what is in stock, packs boxes and books a courier.","tags":["logistics/stock","logistics/shipping"],"languages":["en","pt"],"skills":[{"id":"pack","name":"Pack a box","description":"packs what was ordered"},{"id":"book","name":"Book a courier"}],"accepts_message_types":["order","question"]}`)
	p.mustPut("carol^demo", `{"display_name":"Fetcher","description":"Fetches documents from the archive and sends them by courier.","tags":["archive"],"languages":["en"]}`)
	p.mustPut("erin^lab", `{"display_name":"Lab","description":"Books time on the microscope.","tags":["science"],"languages":["de"]}`)
	p.talk = "order-17"
	in := func(m *relay.SendMessage) { m.Conversation = p.talk }
	ask := p.mustSend(90*time.Minute, p.alice, "dave^demo", `{"order":17}`, in, func(m *relay.SendMessage) { m.Type = "order" })
	p.mustAck(90*time.Minute-2*time.Second, p.dave, ask, "completed", "")
	for i, to := range []relay.Address{"carol^demo", "erin^lab", "bob^demo"} {
		past := 87*time.Minute + 30*time.Second - time.Duration(i)*3*time.Second // half a minute later, no page says another number of minutes
		m := p.mustSend(past, p.dave, to, `{}`, in, func(m *relay.SendMessage) { m.Type = "question" })
		if by := []relay.IssuedKey{p.carol, p.erin, {}}[i]; by.Key != nil {
			p.mustAck(past-time.Second, by, m, []string{"completed", "rejected"}[i], "")
		}
	}
	self := p.mustSend(61*time.Minute, p.dave, "dave^demo", `{}`, in)
	p.mustAck(61*time.Minute-time.Second, p.dave, self, "completed", "")
	p.held = p.mustSend(57*time.Minute, p.carol, "dave^demo", `{"found":true}`, in, func(m *relay.SendMessage) { m.Type = "answer" })
	p.tell()
	if _, err := p.ClaimMessages(context.Background(), &relay.ClaimMessages{At: time.Now().Add(-18 * time.Minute), Key: p.dave.Number, Limit: 1, Lease: time.Hour, Worker: "mill-2", Nonce: 1 << 50}); err != nil {
		t.Fatal(err)
	}
	if live {
		p.index = p.mustIndex()
	}
	return p
}

func (s *stage) mustPut(a relay.Address, profile string) {
	s.t.Helper()
	p, err := relay.ReadProfile([]byte(profile))
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.PutProfile(&relay.PutProfile{At: time.Now().Add(-100 * time.Minute), Address: a, Profile: p.Stored()}); err != nil {
		s.t.Fatal(err)
	}
}

// views are the paths of the views that show a play, by their names.
func (p *play) views() map[string]string {
	return map[string]string{
		"mechas": "/mecha", "mecha": "/mecha/bob%5Edemo", "mecha-held": "/mecha/dave%5Edemo", "mecha-quiet": "/mecha/frank%5Elab",
		"conversation": "/conversation/" + string(p.talk), "pair": "/conversation/" + string(p.answered.Conversation),
		"directory": "/directory", "directory-search": "/directory?q=" + url.QueryEscape("book a courier"), "keys": "/keys", "keys-none": "/keys?q=nobody",
	}
}

// mustIndex lets the console search the directory, as in a server, but however long a search takes: a
// server stops to correct words after 80 ms of it, and gives what it has found after 250 ms.
func (s *stage) mustIndex() *search.Index {
	s.t.Helper()
	x, err := search.Open(s.path+".index", search.Options{Wait: patience, Budget: patience})
	if err != nil {
		s.t.Fatal(err)
	}
	s.OnEntries(x.Wake)
	go x.Follow(context.Background(), s.DB)
	s.t.Cleanup(func() { x.Close() }) // it waits for Follow
	for deadline := time.Now().Add(patience); !x.Ready(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatal("the index is not ready")
		}
	}
	return x
}

// searchBy lets a console search by an index.
func searchBy(x *search.Index) func(*console.Config) {
	return func(c *console.Config) { c.Search = x.Search }
}

func wantText(t testing.TB, where, text string, says ...string) {
	t.Helper()
	for _, part := range says {
		if !strings.Contains(text, part) {
			t.Errorf("%s lacks %q:\n%s", where, part, text)
		}
	}
}

// A Mecha's page says what waits for it and why, what it did in the last hour, who holds what,
// its keys and its profile.
func TestAMechaIsShown(t *testing.T) {
	p := mustPlay(t, true)
	c := p.enter()
	for path, says := range map[string][]string{
		"/mecha/bob%5Edemo":  {"4 messages wait longer than 10 min, the oldest for 1 h 27 min, all for bob^demo, which is not connected, last seen", "Pending, up to an age of 4", "Warehouse", "Knows what is in stock", "Pack a box", "logistics/stock", "backup", "ends soon", "in 2 days", "Last ackcompleted", "Sockets0"},
		"/mecha/dave%5Edemo": {"1 message has waited 57 min for dave^demo, whose worker “mill-2” claimed it at", "by worker mill-2, key mill", "its key has not been used since", "It has no profile."},
		"/mecha/frank%5Elab": {"Nothing waits for frank^lab.", "no request yet", "never started", "never used"},
		"/mecha/erin%5Elab":  {"old laptop", "revoked", "Last ackrejected"},
	} {
		status, page := p.get(c, path)
		if status != 200 {
			t.Errorf("%s: %d", path, status)
		}
		wantText(t, path, words(page), says...)
	}
	for path, level := range map[string]string{"/mecha/bob%5Edemo": "bad", "/mecha/dave%5Edemo": "warn", "/mecha/frank%5Elab": "good"} {
		if _, page := p.get(c, path); !strings.Contains(page, `class="verdict `+level+`"`) {
			t.Errorf("%s is not %s", path, level)
		}
	}
	for _, path := range []string{"/mecha/nobody%5Edemo", "/mecha/%3Cimg%3E", "/mecha/x"} {
		if status, page := p.get(c, path); status != 404 || strings.Contains(page, "<img") {
			t.Errorf("%s: %d %s", path, status, page)
		}
	}
	if err := p.RemoveMecha(&relay.RemoveMecha{At: time.Now(), Address: "bob^demo"}); err != nil {
		t.Fatal(err)
	}
	_, page := p.get(c, "/mecha/bob%5Edemo")
	wantText(t, "a removed Mecha", words(page), "bob^demo was removed: nobody can receive the 4 messages that wait for it.")
}

var names = regexp.MustCompile(`<span class="name"><bdi class="address">([^<]*)</bdi>`)

// The list of Mechas has those with trouble first, then the others by name, each once, however
// many pages that takes.
func TestTheMechasComeByTrouble(t *testing.T) {
	p := mustPlay(t, true)
	for i := range 120 {
		p.mustIssue(address("m%03d^crowd", i), "")
	}
	c := p.enter()
	p.await(c, "/mecha", `126 Mechas registered, messages wait for 3\.`) // the console looks at all of them every now and then
	var all []string
	path := "/mecha"
	for pages := 1; path != ""; pages++ {
		_, page := p.get(c, path)
		found := names.FindAllStringSubmatch(page, -1)
		if len(found) != 50 && pages < 3 {
			t.Errorf("page %d has %d Mechas", pages, len(found))
		}
		for _, m := range found {
			all = append(all, m[1])
		}
		path = nextOf(page)
	}
	if len(all) != 126 || !slices.Equal(all[:5], []string{"bob^demo", "carol^demo", "dave^demo", "alice^demo", "erin^lab"}) || all[125] != "m119^crowd" {
		t.Errorf("%d: %v", len(all), all)
	}
	slices.Sort(all)
	if len(slices.Compact(all)) != 126 {
		t.Error("a Mecha comes twice")
	}
	_, page := p.get(c, "/mecha?q=M11")
	if found := names.FindAllStringSubmatch(page, -1); len(found) != 10 {
		t.Errorf("a search finds %d Mechas", len(found))
	}
	_, page = p.get(c, "/mecha?q=zzz&page=7000000000000000000000")
	wantText(t, "a search for none", words(page), "No address has zzz in it.")
}

func address(form string, n int) relay.Address { return relay.Address(fmt.Sprintf(form, n)) }

// nextOf is where a page's link to the next one leads; "" if it has none.
func nextOf(page string) string {
	_, next, more := strings.Cut(page, `rel="next" href="`)
	if !more {
		return ""
	}
	next, _, _ = strings.Cut(next, `"`)
	return html.UnescapeString(next)
}
