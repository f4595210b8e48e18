package http_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// A cursor is an id that the relay issued, and no other text.
func FuzzHistoryCursor(f *testing.F) {
	r := mustServe(f)
	alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
	var issued []string
	for range 5 {
		issued = append(issued, alice.mustSend(bob).MessageID)
	}
	// An id is new in every process, so the input is what is done to one.
	for _, at := range []byte{0, 3, 4, 5, 11, 17, 29, 30, 40} {
		f.Add(byte(2), at, byte(1), "0")
		f.Add(byte(2), at, byte(0), "")
		f.Add(byte(2), at, byte(30), "x")
	}
	f.Add(byte(0), byte(0), byte(4), "MSG_")
	f.Add(byte(1), byte(0), byte(30), "msg_00000000000000000000000000")
	f.Add(byte(1), byte(4), byte(1), "8")
	f.Fuzz(func(t *testing.T, which, at, length byte, text string) {
		id := issued[int(which)%len(issued)]
		from := min(int(at), len(id))
		cursor := id[:from] + text + id[min(from+int(length), len(id)):]
		a := bob.in(t).get(historyPath(bob) + "?since_message_id=" + url.QueryEscape(cursor))
		place := slices.Index(issued, cursor)
		if cursor == "" {
			place = -1 // the same as none
		} else if place < 0 {
			a.wantProblem(404, "cursor_not_found")
			return
		}
		var p page
		if a.want(200).into(&p); !slices.Equal(p.ids(), issued[place+1:]) {
			t.Fatalf("%q: got %v of %v", cursor, p.ids(), issued)
		}
	})
}

// Whatever is in the query string, the answer is a page that keeps it, or a
// refusal that names what is wrong.
func FuzzHistoryQuery(f *testing.F) {
	r := mustServe(f)
	alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
	var all []string
	for i := range 12 {
		from, to := alice, bob
		if i%3 == 0 {
			from, to = bob, alice
		}
		all = append(all, from.mustSend(to, fmt.Sprintf(`"priority":"%s"`, []string{"low", "normal", "high"}[i%3])).MessageID)
	}
	bob.mustAck(all[1], "completed")
	for _, s := range []string{
		"", "limit=5", "limit=0", "limit=-1", "limit=1e3", "limit=99999999999999999999", "limit=5&limit=6", "direction=in", "direction=IN", "state=pending", "state=acknowledged&order=desc",
		"order=desc&limit=3", "priority=high", "peer=alice%5Edemo", "peer=x", "since=2026-11-20T08:00:00+00:00", "until=2026-11-20T08:00:00Z", "since=now", "include=payload", "include=x",
		"conversation_id=%00", "message_type=message", "before_message_id=x", "%zz", "a=b;c=d", "limit=%35", "=", "&&", "since_message_id=", "limit=",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, query string) {
		v, err := url.ParseQuery(query)
		if v.Has("wait") || strings.ContainsFunc(query, func(c rune) bool { return c <= ' ' || c > '~' || c == '#' }) {
			t.Skip() // waits, or can be no request line
		}
		a := bob.in(t).get(historyPath(bob) + "?" + query)
		if a.status != 200 {
			if a.status != 400 && a.status != 404 && a.status != 403 {
				t.Fatalf("%q: %d %s", query, a.status, a.body)
			}
			var p problem
			if a.into(&p); p.Code == "" || p.Detail == "" {
				t.Fatalf("%q: %s", query, a.body)
			}
			return
		}
		if err != nil {
			t.Fatalf("%q: a page for what is no query: %v", query, err)
		}
		var p page
		a.want(200).into(&p)
		ids := p.ids()
		if p.Limit < 1 || p.Limit > 1000 || len(ids) > p.Limit || !p.HasMore && len(ids) > len(all) {
			t.Fatalf("%q: %s", query, a.body)
		}
		if v.Get("order") == "desc" {
			slices.Reverse(ids)
		}
		if !slices.IsSorted(ids) || len(slices.Compact(slices.Clone(ids))) != len(ids) {
			t.Fatalf("%q: not in order: %v", query, p.ids())
		}
		for _, m := range p.Messages {
			in := m.To == "bob^demo"
			switch d := v.Get("direction"); {
			case d == "in" && !in, d == "out" && in,
				v.Get("priority") != "" && v.Get("priority") != m.Priority,
				v.Get("state") == "acknowledged" && m.State != "acknowledged",
				v.Get("state") == "queued" && m.State != "queued",
				v.Get("conversation_id") != "" && v.Get("conversation_id") != m.ConversationID,
				m.Payload != nil && (!in || v.Get("include") == ""):
				t.Fatalf("%q: %+v", query, m)
			}
		}
	})
}
