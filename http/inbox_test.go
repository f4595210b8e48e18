package http_test

import "testing"

func TestInbox(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
	bob.get(inboxPath(bob)).want(200).wantField("pending", "0").wantField("oldest_message_id", "null").
		wantField("newest_message_id", "null").wantField("by_priority", "{}")

	var ids []string
	for _, p := range []string{"normal", "high", "odd.one", "high"} {
		ids = append(ids, alice.mustSend(bob, `"priority":"`+p+`"`).MessageID)
	}
	bob.mustSend(alice) // not his
	bob.get(inboxPath(bob)).want(200).wantField("pending", "4").wantField("oldest_message_id", `"`+ids[0]+`"`).
		wantField("newest_message_id", `"`+ids[3]+`"`).wantField("by_priority", `{"high":2,"normal":1,"odd.one":1}`)
	bob.mustDeliver(ids[0])
	bob.mustAck(ids[1], "processing")
	bob.get(inboxPath(bob)).want(200).wantField("pending", "4") // delivered is still pending
	bob.mustAck(ids[0], "completed")
	bob.mustAck(ids[3], "filed")
	bob.get(inboxPath(bob)).want(200).wantField("pending", "2").wantField("oldest_message_id", `"`+ids[1]+`"`).
		wantField("newest_message_id", `"`+ids[2]+`"`).wantField("by_priority", `{"high":1,"odd.one":1}`)
}

func TestInboxTags(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
	empty := bob.get(inboxPath(bob)).want(200).header.Get("Etag")
	alice.mustSend(bob)
	a := bob.get(inboxPath(bob)).want(200)
	tag := a.header.Get("Etag")
	if len(tag) < 4 || tag[0] != '"' || tag[len(tag)-1] != '"' || tag == empty {
		t.Fatalf("ETag %s after %s", tag, empty)
	}
	if again := bob.get(inboxPath(bob)).want(200); again.header.Get("Etag") != tag {
		t.Error("the tag changed though nothing did")
	}
	for name, row := range map[string]struct {
		change
		known bool
	}{
		"the tag":          {with("If-None-Match", tag), true},
		"weak":             {with("If-None-Match", "W/"+tag), true},
		"in a list":        {with("If-None-Match", `"x", `+tag+` ,"y"`), true},
		"in a second line": {with("If-None-Match", `"x"`, `W/`+tag), true},
		"anything":         {with("If-None-Match", "*"), true},
		"the one before":   {with("If-None-Match", empty), false},
		"without quotes":   {with("If-None-Match", tag[1:len(tag)-1]), false},
		"a part":           {with("If-None-Match", tag[:6]+`"`), false},
		"none":             {with("If-None-Match"), false},
	} {
		a := bob.get(inboxPath(bob), row.change)
		if !row.known {
			a.want(200)
			continue
		}
		if a.status != 304 || len(a.body) != 0 || a.header.Get("Etag") != tag || a.header.Get("Content-Type") != "" {
			t.Errorf("%s: %d %v %s", name, a.status, a.header, a.body)
		}
	}
	alice.mustSend(bob)
	bob.get(inboxPath(bob), with("If-None-Match", tag)).want(200)
}
