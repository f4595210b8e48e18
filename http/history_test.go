package http_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"relay/db/relay"
)

func TestHistoryParameters(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
	id := alice.mustSend(alice).MessageID
	huge := strings.Repeat("9", 400)
	for query, limit := range map[string]int{
		"": 100, "limit=1": 1, "limit=999": 999, "limit=1000": 1000, "limit=1001": 1000, "limit=" + huge: 1000, "limit=0005": 5,
		"unknown=1&limit=7": 7, // An empty value counts as absent.
		"limit=&wait=&state=&order=&direction=&include=&peer=&since=&until=&since_message_id=&before_message_id=&conversation_id=&message_type=&priority=": 100,
		"direction=all&order=asc": 100, "until=9999-12-31T23:59:59Z": 100, "since=0000-01-01T00:00:00Z": 100,
	} {
		if p := alice.history(query); p.Limit != limit || len(p.Messages) != 1 {
			t.Errorf("%.60s: limit %d, %d messages", query, p.Limit, len(p.Messages))
		}
	}
	for query, row := range map[string]struct {
		field string
		code  relay.Code
	}{
		"limit=0": {"limit", relay.InvalidLimit}, "limit=00": {"limit", relay.InvalidLimit}, "limit=-1": {"limit", relay.InvalidLimit},
		"limit=%20": {"limit", relay.InvalidLimit}, "limit=ten": {"limit", relay.InvalidLimit}, "limit=1.5": {"limit", relay.InvalidLimit},
		"limit=1e2": {"limit", relay.InvalidLimit}, "limit=%2B5": {"limit", relay.InvalidLimit}, "limit=-" + huge: {"limit", relay.InvalidLimit},
		"limit=0x10": {"limit", relay.InvalidLimit}, "limit=%D9%A3": {"limit", relay.InvalidLimit},
		"since=yesterday": {"since", relay.InvalidTime}, "since=2026-11-20": {"since", relay.InvalidTime},
		"until=2026-11-20T08:00:00": {"until", relay.InvalidTime}, "until=1795161660": {"until", relay.InvalidTime},
		"direction=both": {"direction", relay.InvalidRequest}, "direction=IN": {"direction", relay.InvalidRequest},
		"state=done": {"state", relay.InvalidRequest}, "order=down": {"order", relay.InvalidRequest}, "include=all": {"include", relay.InvalidRequest},
		"wait=-1": {"wait", relay.InvalidRequest}, "wait=soon": {"wait", relay.InvalidRequest}, "wait=0.5": {"wait", relay.InvalidRequest},
		"peer=bob": {"peer", relay.InvalidAddress}, "conversation_id=a+b": {"conversation_id", relay.InvalidRequest},
	} {
		alice.get(historyPath(alice)+"?"+query).wantFault(400, row.code, row.field)
	}
	alice.get(historyPath(alice)+"?limit=%zz").wantProblem(400, relay.InvalidRequest)
	bob.get(historyPath(alice)).wantProblem(403, relay.NotYourMecha)
	bob.get(inboxPath(alice)).wantProblem(403, relay.NotYourMecha)
	for _, cursor := range []string{"x", "msg_", id + "0", strings.ToUpper(id), "msg_" + strings.Repeat("0", 26), "%00"} {
		alice.get(historyPath(alice)+"?since_message_id="+cursor).wantProblem(404, relay.CursorNotFound)
		alice.get(historyPath(alice)+"?before_message_id="+cursor).wantProblem(404, relay.CursorNotFound)
	}
	if p := bob.history("since_message_id=" + id); len(p.Messages) != 0 || *p.NextCursor != id { // a position, whosever it was
		t.Errorf("%+v", p)
	}
	if p := bob.history(""); p.NextCursor != nil || p.Messages == nil || p.HasMore {
		t.Errorf("an empty history: %+v", p)
	}
}

func TestSinceAndUntil(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice := r.mustIssue("alice^demo")
	var ids []string
	for range 4 { // at 08:00:00.000, .001, .002, .003
		ids = append(ids, alice.mustSend(alice).MessageID)
		r.clock.advance(time.Millisecond)
	}
	for query, want := range map[string][]string{
		"since=2026-11-20T08:00:00.001Z":                                           ids[1:], // inclusive
		"until=2026-11-20T08:00:00.001Z":                                           ids[:1], // exclusive
		"since=2026-11-20T08:00:00.001Z&until=2026-11-20T08:00:00.003Z":            ids[1:3],
		"since=2026-11-20T08:00:00.001Z&until=2026-11-20T08:00:00.001Z":            nil,
		"since=2026-11-20T08:00:00.003Z&until=2026-11-20T08:00:00.001Z":            nil,
		"since=2026-11-20T08:00:00.0010001Z":                                       ids[2:],
		"until=2026-11-20T08:00:00.0010001Z":                                       ids[:2],
		"since=2026-11-20T09:00:00.002%2B01:00":                                    ids[2:],
		"since=2026-11-20T09:00:00.002+01:00":                                      ids[2:], // a + that was not escaped
		"since=2026-11-20T09:00:00.002%2001:00":                                    ids[2:],
		"since=2026-11-20T07:00:00.002-01:00":                                      ids[2:],
		"since=2026-11-20t08:00:00.003z":                                           ids[3:],
		"until=1969-01-01T00:00:00Z":                                               nil,
		"until=0001-01-01T00:00:00Z":                                               nil,
		"since=9999-12-31T23:59:59Z":                                               nil,
		"since=2026-11-20T08:00:00.001Z&since_message_id=" + ids[1]:                ids[2:],
		"until=2026-11-20T08:00:00.003Z&before_message_id=" + ids[2]:               ids[:2],
		"since_message_id=" + ids[0] + "&before_message_id=" + ids[3]:              ids[1:3],
		"order=desc&since_message_id=" + ids[1]:                                    {ids[3], ids[2]},
		"order=desc&since=2026-11-20T08:00:00.001Z&until=2026-11-20T08:00:00.003Z": {ids[2], ids[1]},
	} {
		if p := alice.history(query); !slices.Equal(p.ids(), want) {
			t.Errorf("%s: %v, want %v", query, p.ids(), want)
		}
	}
}

func TestFilters(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob, carol := r.mustIssue("alice^demo"), r.mustIssue("bob^demo"), r.mustIssue("carol^demo")
	name := map[string]string{} // of each message
	send := func(as string, from, to mecha, fields ...string) string {
		id := from.mustSend(to, fields...).MessageID
		name[id] = as
		return id
	}
	send("a", alice, bob, `"message_type":"task"`)
	delivered := send("b", alice, bob, `"priority":"high"`)
	received := send("c", bob, alice, `"message_type":"task","priority":"high"`)
	own := send("d", alice, alice)
	send("e", alice, carol, `"ttl_seconds":1`)
	send("f", carol, alice, `"ttl_seconds":1`, `"message_type":"task"`)
	send("-", bob, carol)
	bob.mustDeliver(delivered)
	alice.mustAck(received, "completed")
	alice.mustAck(own, "processing")
	r.clock.advance(2 * time.Second)

	for query, want := range map[string]string{
		"":                                                "abcdef",
		"direction=all":                                   "abcdef", // a message to oneself once
		"direction=in":                                    "cdf",
		"direction=out":                                   "abde",
		"state=queued":                                    "a",
		"state=delivered":                                 "bd",
		"state=acknowledged":                              "c",
		"state=expired":                                   "ef",
		"state=pending":                                   "abd",
		"peer=bob^demo":                                   "abc",
		"peer=alice^demo":                                 "d",
		"peer=carol%5Edemo":                               "ef",
		"peer=nobody^demo":                                "",
		"message_type=task":                               "acf",
		"message_type=Task":                               "",
		"message_type=none":                               "",
		"priority=high":                                   "bc",
		"priority=normal":                                 "adef",
		"priority=never_heard":                            "",
		"direction=in&state=pending":                      "d",
		"direction=out&state=pending":                     "abd",
		"direction=in&state=expired":                      "f",
		"direction=out&state=acknowledged":                "",
		"direction=in&state=acknowledged":                 "c",
		"direction=out&peer=bob^demo":                     "ab",
		"direction=in&peer=bob^demo":                      "c",
		"direction=in&peer=alice^demo":                    "d",
		"direction=out&peer=alice^demo":                   "d",
		"peer=bob^demo&message_type=task":                 "ac",
		"peer=bob^demo&message_type=task&priority=high":   "c",
		"message_type=task&state=acknowledged":            "c",
		"limit=2&peer=bob^demo":                           "ab",
		"limit=2&priority=normal&since_message_id=" + own: "ef",
	} {
		for _, order := range []string{"asc", "desc"} {
			if order == "desc" && strings.Contains(query, "limit") {
				continue
			}
			p := alice.history(strings.ReplaceAll(query, "^", "%5E") + "&order=" + order)
			got := ""
			for _, id := range p.ids() {
				got += name[id]
			}
			if order == "desc" {
				b := []byte(got)
				slices.Reverse(b)
				got = string(b)
			}
			if more := query == "limit=2&peer=bob^demo"; got != want || p.HasMore != more {
				t.Errorf("%s %s: %q, want %q; has_more %v", query, order, got, want, p.HasMore)
			}
		}
	}
	// A full page does not look whether what follows matches: the walk ends anyway.
	if got, _ := alice.walk("limit=3&peer=bob%5Edemo", "since_message_id"); len(got) != 3 {
		t.Errorf("a walk over full pages found %v", got)
	}
}

// walk follows the cursors to the end and gives every id that it met.
func (m mecha) walk(query, cursor string) (ids []string, pages int) {
	m.r.t.Helper()
	at := ""
	for {
		p := m.history(query + at)
		ids = append(ids, p.ids()...)
		pages++
		if !p.HasMore {
			return ids, pages
		}
		if at == "&"+cursor+"="+*p.NextCursor {
			m.r.t.Fatalf("%s stands still at %s", query, at)
		}
		at = "&" + cursor + "=" + *p.NextCursor
	}
}

func TestPagesCoverEachMessageOnce(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
	var all, received []string
	for i := range 23 {
		var id string
		switch i % 4 {
		case 0:
			id = alice.mustSend(bob).MessageID
		case 1:
			id = alice.mustSend(alice).MessageID
		default:
			id = bob.mustSend(alice, `"message_type":"task"`).MessageID
		}
		all = append(all, id)
		if i%4 != 0 {
			received = append(received, id)
		}
		if i%4 == 2 {
			alice.mustAck(id, "completed") // is in another range of the index
		}
		if i%5 == 0 {
			r.clock.advance(time.Second)
		}
	}
	for _, limit := range []int{1, 2, 5, 22, 23, 24, 1000} {
		for query, want := range map[string][]string{"": all, "&direction=in": received} {
			query := fmt.Sprintf("limit=%d%s", limit, query)
			pages := (len(want) + limit - 1) / limit
			if got, n := alice.walk(query, "since_message_id"); !slices.Equal(got, want) || n != pages {
				t.Errorf("%s, forward in %d pages: %v\nwant %v", query, n, got, want)
			}
			got, n := alice.walk(query+"&order=desc", "before_message_id")
			if slices.Reverse(got); !slices.Equal(got, want) || n != pages {
				t.Errorf("%s, backward in %d pages: %v\nwant %v", query, n, got, want)
			}
		}
	}
	last := all[len(all)-1]
	if p := alice.history("since_message_id=" + last); len(p.Messages) != 0 || p.HasMore || *p.NextCursor != last {
		t.Errorf("after the end: %+v", p)
	}
	if p := alice.history("order=desc&before_message_id=" + all[0]); len(p.Messages) != 0 || p.HasMore || *p.NextCursor != all[0] {
		t.Errorf("before the beginning: %+v", p)
	}
	if p := alice.history("limit=5"); *p.NextCursor != all[4] || !p.HasMore {
		t.Errorf("%+v", p)
	}
	if p := alice.history(""); *p.NextCursor != last || p.HasMore {
		t.Errorf("%+v", p)
	}
}

// A filtered page looks at 10,000 rows: it comes back short, and the walk still finds all.
func TestAFilterThatFindsLittle(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("writes 10,000 messages")
	}
	r := mustServe(t)
	alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
	rare := func() string { return alice.mustSend(bob, `"priority":"rare"`).MessageID }
	want := []string{rare()}
	r.mustFill(alice, bob, 10_000)
	want = append(want, rare(), rare())

	p := bob.history("priority=rare")
	if !slices.Equal(p.ids(), want[:1]) || !p.HasMore || *p.NextCursor <= want[0] || *p.NextCursor >= want[1] {
		t.Errorf("the first page: %v, has_more %v, next_cursor %s", p.ids(), p.HasMore, *p.NextCursor)
	}
	if p := bob.history("priority=rare&since_message_id=" + *p.NextCursor); !slices.Equal(p.ids(), want[1:]) || p.HasMore {
		t.Errorf("the second page: %v, has_more %v", p.ids(), p.HasMore)
	}
	got, pages := alice.walk("priority=rare&order=desc", "before_message_id")
	if slices.Reverse(got); !slices.Equal(got, want) || pages != 2 {
		t.Errorf("backward in %d pages: %v, want %v", pages, got, want)
	}
	p = alice.history("priority=message") // a word in use, but as a type
	if len(p.Messages) != 0 || !p.HasMore || p.NextCursor == nil {
		t.Fatalf("a page of nothing: %+v", p)
	}
	if p := alice.history("priority=message&since_message_id=" + *p.NextCursor); len(p.Messages) != 0 || p.HasMore {
		t.Errorf("the end of nothing: %+v", p)
	}
	if p := alice.history("priority=none"); len(p.Messages) != 0 || p.HasMore || p.NextCursor != nil {
		t.Errorf("a word that nobody has used needs no search: %+v", p)
	}
	if p := bob.history("limit=5000"); len(p.Messages) != 1000 || p.Limit != 1000 || !p.HasMore {
		t.Errorf("a page above the maximum has %d", len(p.Messages))
	}
}

func TestPagesWithPayloadsEndAt4MiB(t *testing.T) {
	t.Parallel()
	r := mustServe(t, func(s *settings) { s.api.MaxBody = 6 << 20 })
	alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
	var ids []string
	send := func(from, to mecha, size int) {
		payload := `{"a":"` + strings.Repeat("x", size-8) + `"}`
		var s sent
		from.post(messages, `{"to":"`+string(to.Mecha.Address)+`","payload":`+payload+`}`, unsigned).want(201).into(&s)
		ids = append(ids, s.MessageID)
	}
	for _, size := range []int{2 << 20, 2 << 20, 100, 5 << 20, 100} { // 4 MiB are a page; what is larger is a page of its own
		send(alice, bob, size)
	}
	for _, row := range []struct{ first, n int }{{0, 2}, {2, 1}, {3, 1}, {4, 1}} {
		query := "include=payload"
		if row.first > 0 {
			query += "&since_message_id=" + ids[row.first-1]
		}
		p := bob.history(query)
		if !slices.Equal(p.ids(), ids[row.first:row.first+row.n]) || p.HasMore != (row.first < 4) || *p.NextCursor != ids[row.first+row.n-1] {
			t.Errorf("%s: %d messages, has_more %v", query, len(p.Messages), p.HasMore)
		}
		for _, m := range p.Messages {
			if len(m.Payload) != m.PayloadBytes {
				t.Errorf("a payload of %d bytes came as %d", m.PayloadBytes, len(m.Payload))
			}
		}
	}
	got, _ := bob.walk("include=payload&order=desc", "before_message_id")
	if slices.Reverse(got); !slices.Equal(got, ids) {
		t.Errorf("backward: %v, want %v", got, ids)
	}
	if p := alice.history("include=payload"); len(p.Messages) != 5 { // carries none
		t.Errorf("the sender's page has %d", len(p.Messages))
	}
	if p := bob.history(""); len(p.Messages) != 5 {
		t.Errorf("a page without payloads has %d", len(p.Messages))
	}
}
