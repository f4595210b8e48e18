package console_test

import (
	"context"
	"fmt"
	"html"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"relay/db"
	"relay/db/relay"
	relayhttp "relay/http"
	"relay/http/client"
	"relay/ws"
)

// serve runs a real server on the store, which the console believes from then on.
func (s *stage) serve() (url string) {
	s.t.Helper()
	// The window of a socket stays full for as long as the test looks.
	hub := ws.NewHub(ws.Config{Store: s.DB, SyncAckWait: time.Hour, PingEvery: time.Hour, DeadAfter: time.Hour})
	s.OnCommit(hub.Committed)
	s.OnKeys(hub.CheckKeys)
	server := httptest.NewServer(relayhttp.New(relayhttp.Config{DB: s.DB, Live: hub, ClockSkew: 5 * time.Minute, MaxBody: 1 << 20}))
	s.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		hub.Close(ctx)
		server.Close()
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hub, s.health.MinFreeDisk = hub, 128<<30
	return server.URL
}

// mustConnect opens the socket of a Mecha, and reads so many messages without a word about them.
func (s *stage) mustConnect(url string, k relay.IssuedKey, query string, messages int) *client.Socket {
	s.t.Helper()
	c, err := client.New(client.Config{URL: url, Key: k.Text})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.t.Cleanup(cancel)
	socket, err := c.Dial(ctx, k.Mecha.Address, query)
	if err != nil {
		s.t.Fatal(err)
	}
	for messages > 0 {
		frame, err := socket.Next()
		if err != nil {
			s.t.Fatal(err)
		}
		if strings.Contains(string(frame), `"message_id"`) {
			messages--
		}
	}
	return socket
}

// A trouble is something that goes wrong between alice, who asks, and bob, who does not answer.
type trouble struct {
	name  string
	stage func(s *story) (about *relay.Message)
	now   []string // what Now says, as regular expressions, each of one part of the page's text
	trace []string // what the page of the message says
	level string   // of Now's sentence
	page  string   // the level of the message's page
}

// clock is a time as a page says it; the time of another day has its date, and no seconds.
const clock = `(\d\d:\d\d:\d\d|\d\d? [A-Z][a-z]{2} \d\d:\d\d) UTC`

var troubles = []trouble{
	{"worker never started", func(s *story) *relay.Message {
		return s.mustSend(20*time.Minute, s.alice, "bob^demo", `{"task":"pack"}`)
	}, []string{`1 message has waited 20 min for bob\^demo, which has never made a request: it was registered at ` + clock + `, and has a key, “worker”, that was never used\..* Start bob\^demo with its key, “worker”\.`},
		[]string{`bob\^demo has never made a request\. It was registered at ` + clock + `, and has a key, “worker”, that was never used\.`, `bob\^demo: no request yet`, `Start bob\^demo with its key, “worker”\.`}, "bad", "bad"},

	{"worker hangs", func(s *story) *relay.Message {
		m := s.mustSend(20*time.Minute, s.alice, "bob^demo", `{"task":"pack"}`)
		s.Pushed(s.bob.Number, time.Now().Add(-19*time.Minute), []relay.Position{m.Position})
		s.isOnline(s.bob)
		return m
	}, []string{`1 message has waited 20 min for bob\^demo, which was sent it at ` + clock + `, is connected, and has not acknowledged it\..* Look at what bob\^demo does; if it hangs, restart it\.`},
		[]string{`bob\^demo was sent the message at ` + clock + `, is connected, and has not acknowledged it\. The message has waited 20 min\.`, `Last written to a socket at ` + clock + `, (18|19) min ago\. bob\^demo: connected`, `State ?pushed, not acknowledged`, `Look at what bob\^demo does; if it hangs, restart it\.`}, "bad", "bad"},

	{"crashed between push and ack", func(s *story) *relay.Message {
		m := s.mustSend(20*time.Minute, s.alice, "bob^demo", `{"task":"pack"}`)
		s.Pushed(s.bob.Number, time.Now().Add(-19*time.Minute), []relay.Position{m.Position})
		return m
	}, []string{`1 message has waited 20 min for bob\^demo, which was sent it at ` + clock + `, has not acknowledged it, and is not connected now\..* Look at why bob\^demo is not connected any more, and start it again\.`, `bob\^demo ?not connected, last seen ` + clock},
		[]string{`bob\^demo was sent the message at ` + clock + `, has not acknowledged it, and is not connected now; it was last seen at ` + clock + `\.`, `bob\^demo: not connected, last seen ` + clock, `Look at why bob\^demo is not connected any more, and start it again\.`, `State ?pushed, not acknowledged`}, "bad", "bad"},

	{"window full", func(s *story) (last *relay.Message) {
		for i := range 4 {
			last = s.mustSend(20*time.Minute-time.Duration(i)*time.Second, s.alice, "bob^demo", `{"task":"pack"}`)
		}
		s.mustConnect(s.serve(), s.bob, "sync_limit=2", 2)
		return last
	}, []string{`4 messages wait longer than 10 min, the oldest for \d\d min, all for bob\^demo, which is connected since ` + clock + `, and has not acknowledged 2 messages that it was sent: its window is full, so the relay sends it no others for now\..* Look at what bob\^demo does with the oldest message that it has not acknowledged\.`, `The oldest message was written to 1 socket of bob\^demo at`},
		[]string{`bob\^demo is connected since ` + clock + `, and has not acknowledged 2 messages that it was sent: its window is full, so the relay has not sent it this message yet\.`, `3 messages before this one\.`, `Look at what bob\^demo does with the oldest message that it has not acknowledged\.`, `State ?waits, no delivery is recorded`}, "warn", "warn"},

	{"expired", func(s *story) *relay.Message {
		m := s.mustSend(20*time.Minute, s.alice, "bob^demo", `{"task":"pack"}`, func(m *relay.SendMessage) { m.ExpiresAt = m.At.Add(5 * time.Minute) })
		return m
	}, []string{`1 message expired in the last hour, for bob\^demo: bob\^demo has never made a request\..* Start bob\^demo with its key, “worker”\. Then send the message again, if it still matters\.`},
		[]string{`The message expired at ` + clock + `, before bob\^demo acknowledged it: bob\^demo has never made a request\. Expired at ` + clock + `, 15 min ago\.`, `Start bob\^demo with its key, “worker”\. Then send the message again, if it still matters\.`, `No answer came before the message expired\.`}, "warn", "warn"},

	{"answered in another conversation", func(s *story) *relay.Message {
		m := s.mustSend(20*time.Minute, s.alice, "bob^demo", `{"question":"how much?"}`)
		s.mustSend(19*time.Minute, s.bob, "alice^demo", `{"price":42}`, func(a *relay.SendMessage) { a.Conversation = "orders-7" })
		s.mustAck(19*time.Minute, s.bob, m, "completed", "")
		return m
	}, []string{`1 message has waited 19 min for alice\^demo, which is not connected, last seen ` + clock + `\. The message, from bob\^demo, may be an answer that was sent in another conversation\.`,
		`bob\^demo acknowledged msg_…\w+ from alice\^demo as completed, and no answer to that is recorded; but at about that time it sent msg_…\w+ in the conversation orders-7\.`, `Start alice\^demo\. Make bob\^demo name the message that it answers, by in_reply_to\.`, `accepted ?bob\^demo → alice\^demo ?12 bytes, in orders-7`},
		[]string{`bob\^demo acknowledged the message as completed at ` + clock + `, and no answer to it is recorded\.`, `But bob\^demo wrote to alice\^demo at ` + clock + ` in another conversation, orders-7: msg_…\w+ may be meant as the answer\. alice\^demo has not acknowledged msg_…\w+, which has waited 19 min\. alice\^demo: not connected, last seen ` + clock + `\.`,
			`No answer is recorded\. bob\^demo has sent alice\^demo since:`, `Start alice\^demo\. Make bob\^demo name the message that it answers, by in_reply_to\.`}, "bad", "bad"},

	{"revoked key", func(s *story) *relay.Message {
		s.mustSee(30*time.Minute, s.bob)
		m := s.mustSend(20*time.Minute, s.alice, "bob^demo", `{"task":"pack"}`)
		s.reopen(func(o *db.Options) { o.By = maria }) // the audit log says who it was
		if err := s.Revoke(&relay.RevokeKey{At: time.Now().Add(-19 * time.Minute), ID: s.bob.ID}); err != nil {
			s.t.Fatal(err)
		}
		return m
	}, []string{`1 message has waited 20 min for bob\^demo, whose only key, “worker”, was revoked at ` + clock + ` by maria\..* Make a new key, give it to bob\^demo, and start it with that: relay key create bob\^demo`},
		[]string{`bob\^demo’s only key, “worker”, was revoked at ` + clock + ` by maria: nobody can receive the message\.`, `bob\^demo: no valid key\.`, `Make a new key, give it to bob\^demo, and start it with that: relay key create bob\^demo`,
			`key revoked \+1 min ?the only key of bob\^demo, “worker”, by maria`, `Send again \(in vain until bob\^demo has a valid key\)`}, "bad", "bad"},

	{"deferred", func(s *story) *relay.Message {
		m := s.mustSend(20*time.Minute, s.alice, "bob^demo", `{"task":"pack"}`)
		s.nonce++
		at := time.Now().Add(-19 * time.Minute)
		_, err := s.Acknowledge(&relay.Acknowledge{At: at, Key: s.bob.Number, ID: m.ID, Status: relay.Deferred, RetryAfter: time.Hour, ClientTS: relay.FormatTime(at), Detail: "the printer is out of paper", Nonce: s.nonce})
		if err != nil {
			s.t.Fatal(err)
		}
		return m
	}, []string{`1 message has waited 20 min for bob\^demo, which has put it off until ` + clock + `: “the printer is out of paper”\..* Wait until ` + clock + `, when bob\^demo is sent the message again, or mend what bob\^demo gives as its reason\.`, `bob\^demo ?not connected, last seen ` + clock, `the printer is out of paper`},
		[]string{`bob\^demo has deferred the message until ` + clock + `: “the printer is out of paper”\. The message has waited 20 min\. Deferred at`, `deferred ?\S* ?(min)? ?until ` + clock + `: “the printer is out of paper”`, `Wait until ` + clock, `State ?deferred, not acknowledged`}, "warn", "warn"},

	{"lease held by a dead worker", func(s *story) *relay.Message {
		m := s.mustSend(20*time.Minute, s.alice, "bob^demo", `{"task":"pack"}`)
		s.mustSee(19*time.Minute, s.bob)
		s.nonce++
		if _, err := s.ClaimMessages(s.t.Context(), &relay.ClaimMessages{At: time.Now().Add(-19 * time.Minute), Key: s.bob.Number, Limit: 1, Lease: time.Hour, Worker: "mill-2", Nonce: s.nonce}); err != nil {
			s.t.Fatal(err)
		}
		return m
	}, []string{`1 message has waited 20 min for bob\^demo, whose worker “mill-2” claimed it at ` + clock + ` and has reported nothing since; its lease ends at ` + clock + `\..* Look at whether the worker “mill-2” still runs, or wait until ` + clock + `: then its lease ends, and another worker can claim the message\.`},
		[]string{`The worker “mill-2” of bob\^demo has claimed the message until ` + clock + `, and has reported nothing yet\.`, `bob\^demo: not connected, last seen ` + clock, `Look at whether the worker “mill-2” still runs, or wait until ` + clock, `State ?claimed, not acknowledged`}, "bad", "bad"},

	{"disk low", func(s *story) *relay.Message {
		m := s.mustSend(time.Minute, s.alice, "bob^demo", `{"task":"pack"}`)
		s.reopen(func(o *db.Options) { o.MinFreeDisk = math.MaxInt64 }) // nothing is ever free enough
		s.serve()
		return m
	}, []string{`The relay refuses new messages: the free space on its disk, \d.*iB, is below its limit of 128 GiB\. 1 message has waited 1 min for bob\^demo, which has never made a request: .*Make space on the disk: the relay then accepts messages again automatically\. Start bob\^demo with its key, “worker”\..*3 Mechas registered`},
		[]string{`The relay refuses new messages: the free space on its disk, \d.*iB, is below its limit of 128 GiB\. bob\^demo has never made a request\. .*Make space on the disk: the relay then accepts messages again automatically\. Start bob\^demo with its key, “worker”\.`, `Send again \(the relay refuses it now\)`}, "bad", "bad"},
}

// reopen opens the store again, with other options.
func (s *stage) reopen(option func(*db.Options)) {
	s.t.Helper()
	schema, err := os.ReadFile("../../schema.sql")
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.DB.Close(); err != nil {
		s.t.Fatal(err)
	}
	o := db.Options{Path: s.path, Schema: string(schema), Serve: true, ClockSkew: 5 * time.Minute, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}
	option(&o)
	d, err := db.Open(o)
	if err != nil {
		s.t.Fatal(err)
	}
	s.DB = d
	s.t.Cleanup(func() { d.Close() })
}

var tags = regexp.MustCompile(`<[^>]*>`)

// words are what a person reads in a page.
func words(page string) string {
	if i := strings.Index(page, "<main"); i >= 0 {
		page = page[i:]
	}
	return strings.Join(strings.Fields(html.UnescapeString(tags.ReplaceAllString(page, ""))), " ")
}

// For each trouble that people have, Now names it and whose it is, and the page of the message
// says why. With -shots, pictures of both are written.
func TestTheTroublesAreNamed(t *testing.T) {
	var b *tab
	if *shots != "" {
		b = mustOpen(t)
		b.look(1440, 900, false)
	}
	for n, trouble := range troubles {
		t.Run(trouble.name, func(t *testing.T) {
			s := mustBegin(t, true, inNeutralFile)
			m := trouble.stage(s)
			visitor := s.enter()
			for _, page := range []struct {
				name, path string
				says       []string
			}{{"now", "/", trouble.now}, {"trace", "/message/" + string(m.ID), trouble.trace}} {
				for _, says := range page.says {
					s.await(visitor, page.path, says)
				}
				level := map[string]string{"now": trouble.level, "trace": trouble.page}[page.name]
				if _, text := s.get(visitor, page.path); !strings.Contains(text, `class="verdict `+level+`"`) {
					t.Errorf("%s is not %s: %s", page.name, level, words(text))
				}
				if b != nil {
					b.open(s.entry(page.path))
					b.await(isLive)
					b.shoot(fmt.Sprintf("trouble-%d-%s-%s", n, strings.ReplaceAll(trouble.name, " ", "-"), page.name))
				}
			}
		})
	}
}

// await asks for a page until its words match. Pushes are noted with a later commit, and who
// leaves is noticed a moment later.
func (s *stage) await(visitor *http.Client, path, says string) {
	s.t.Helper()
	text := ""
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if _, text = s.get(visitor, path); regexp.MustCompile(says).MatchString(words(text)) {
			return
		}
	}
	s.t.Fatalf("%s does not say %q:\n%s", path, says, words(text))
}

// Young messages for several Mechas that nobody can receive: the sentence counts all of them.
func TestTheSentenceCountsAllThatWait(t *testing.T) {
	s := mustStage(t, true)
	alice := s.mustIssue("alice^demo", "")
	for _, to := range []relay.Address{"bob^demo", "bob^demo", "carol^demo"} {
		k := s.mustIssue(to, "")
		s.mustSend(time.Minute, alice, to, `{}`)
		if err := s.Revoke(&relay.RevokeKey{At: time.Now(), ID: k.ID}); err != nil {
			t.Fatal(err)
		}
	}
	s.await(s.enter(), "/", `3 messages wait, for 2 Mechas, the oldest for bob\^demo`)
}
