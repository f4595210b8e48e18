package http_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"relay/db"
	"relay/db/learning"
	"relay/db/relay"
	"relay/db/scratch"
	"relay/search"
	"relay/search/learned"
)

// learns makes a relay learn.
func learns(s *settings) { s.db.Lessons = learning.With(relay.DefaultHalfLife) }

func lessonsOf(d *db.DB) *learning.Learning { return d.Lessons().(*learning.Learning) }

func init() {
	boost = func(d *db.DB) search.Boost {
		return learned.New(lessonsOf(d), relay.DefaultHalfLife, slog.New(slog.DiscardHandler))
	}
}

// mustDescribe sets a profile, and waits until searches know it.
func (m mecha) mustDescribe(profile string) {
	m.r.t.Helper()
	m.mustProfile(profile)
	m.r.mustIndex()
}

// wantWords waits until these words were learned of a Mecha, and no others.
func (m mecha) wantWords(want ...string) {
	m.r.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		m.r.clock.advance(time.Second) // exchanges are counted soon after they have ended
		all, err := lessonsOf(m.r.db).Learned(context.Background(), 0, 100)
		if err != nil {
			m.r.t.Fatal(err)
		}
		var words []string
		for _, l := range all {
			for _, w := range l.Words {
				if l.Mecha == m.Mecha.Number {
					words = append(words, fmt.Sprintf("%s %.0f", w.Word, w.Weight))
				}
			}
		}
		if slices.Equal(words, want) {
			return
		}
		if time.Now().After(deadline) {
			m.r.t.Fatalf("learned %q, want %q", words, want)
		}
	}
}

func TestASearchIDTeachesAndIsNotPassedOn(t *testing.T) {
	r := mustServe(t, learns)
	alice, bob, carol := r.mustIssue("alice^demo"), r.mustIssue("bob^demo"), r.mustIssue("carol^travel")
	carol.mustDescribe(`{"description":"books flights"}`)
	id := alice.mustFind(`{"query":"Book the flights!"}`).RequestID
	field := fmt.Sprintf(`"search_id":%q`, id)

	live := carol.mustOpen()
	s := alice.mustSend(carol, field)
	if _, text := live.read(); strings.Contains(string(text), "srch_") {
		t.Errorf("the frame names the search: %s", text)
	}
	for _, reply := range []reply{carol.get(messagePath(s.MessageID)), alice.get(messagePath(s.MessageID)), carol.get(messagePath(s.MessageID) + "/payload"),
		carol.get(historyPath(carol) + "?include=payload"), carol.get(messagePath(s.MessageID) + "/trace")} {
		if body := string(reply.want(200).body); strings.Contains(body, "srch_") || strings.Contains(body, "search") {
			t.Errorf("an answer names the search: %s", body)
		}
	}
	carol.mustAck(s.MessageID, "completed").want(200)
	carol.wantWords("book 1", "flight 1")

	// Over a socket, and with a retry, which counts once.
	socket := alice.mustOpen()
	message := letter(carol, field)
	first := socket.send(message, `"idempotency_key":"again"`)
	if again := socket.send(message, `"idempotency_key":"again"`); !again.Replayed || again.MessageID != first.MessageID {
		t.Errorf("the retry: %+v", again)
	}
	carol.mustAck(first.MessageID, "completed").want(200)
	carol.mustAck(first.MessageID, "completed").want(200)
	carol.wantWords("book 2", "flight 2")
	alice.post(messages, letter(carol), idempotent("again")).wantProblem(422, relay.IdempotencyKeyReused)

	// One that fails takes one back.
	failed := alice.mustSend(carol, field)
	carol.mustAck(failed.MessageID, "failed").want(200)
	carol.wantWords("book 1", "flight 1")

	// Ignored: of another Mecha, unknown, for one that was not listed. Left out: null and "".
	for _, field := range []string{field, `"search_id":"srch_00000000000000000000000000"`, `"search_id":null`, `"search_id":""`} {
		s := bob.mustSend(carol, field)
		carol.mustAck(s.MessageID, "completed").want(200)
	}
	s = alice.mustSend(bob, field)
	bob.mustAck(s.MessageID, "completed").want(200)
	for _, bad := range []string{`"srch_1"`, `"msg_00000000000000000000000000"`, `7`} {
		alice.post(messages, letter(carol, `"search_id":`+bad)).wantFault(400, relay.InvalidRequest, "search_id")
	}
	carol.wantWords("book 1", "flight 1")
	bob.wantWords()

	// The Mecha itself may have it forgotten.
	carol.mustDescribe(`{"description":"books flights","learn":false}`)
	carol.wantWords()
	if got := carol.get("/api/v1/mecha/carol^travel/profile").want(200); !strings.Contains(string(got.body), `"learn":false`) {
		t.Errorf("the profile is %s", got.body)
	}
	carol.do("PUT", "/api/v1/mecha/carol^travel/profile", `{"learn":"no"}`).wantFault(400, relay.InvalidRequest, "learn")
}

// files reads all that a relay has written: the database, what is next to it, the index. The index
// removes files of its own meanwhile: what is gone is passed over.
func (r *testRelay) files() map[string][]byte {
	r.t.Helper()
	all := map[string][]byte{}
	err := filepath.WalkDir(filepath.Dir(r.settings.db.Path), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() { // not a folder, nor the socket for commands
			var text []byte
			if text, err = os.ReadFile(path); err == nil {
				all[path] = text
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil || all[r.settings.db.Path] == nil {
		r.t.Fatalf("%d files: %v", len(all), err)
	}
	return all
}

// stretches returns what must not be found of a query: all of it, and any two of its words or of
// their stems that follow each other, in it or in the alphabet, however they are joined.
func stretches(query string, stems []string) (all [][]byte) {
	all = append(all, []byte(query))
	sorted := slices.Sorted(slices.Values(stems))
	for _, words := range [][]string{strings.Fields(query), stems, sorted} {
		for i := range len(words) - 1 {
			for _, between := range []string{" ", "\n", "+", "%20", `","`, "\x00", ","} {
				all = append(all, []byte(words[i]+between+words[i+1]))
			}
		}
	}
	return all
}

// A query and its words are in the file as long as the page "privacy" says, and no longer: not
// in what was deleted, nor in the index.
func TestNoTextOfAQueryStays(t *testing.T) {
	r := mustServe(t, learns)
	alice, carol := r.mustIssue("alice^demo"), r.mustIssue("carol^travel")
	carol.mustDescribe(`{"description":"repairs airships of all kinds","tags":["zeppelin"]}`)
	for i := range 40 { // so that answers are long, and fill pages of their own
		m := r.mustIssue(relay.Address(fmt.Sprintf("other%d^travel", i)))
		m.mustProfile(fmt.Sprintf(`{"description":"zeppelin %s"}`, strings.Repeat("long ", 300)))
	}
	r.mustIndex()
	query, stems := "urgently mooring zeppelins beside hangars", []string{"urgent", "moor", "zeppelin", "besid", "hangar"}
	// The words of so many exchanges with dave fill pages of the file, which become free.
	uncounted := scratch.Amount(t, 30, 60)
	long := "harpsichord blanket walnut thermostat umbrella velvet kangaroo marzipan quadrant saxophon turnip yacht xylophon bobsleigh crumpet dolphin"
	dave := r.mustIssue("dave^music")
	dave.mustDescribe(`{"description":"tunes a harpsichord"}`)
	found := func(what string, want bool) {
		t.Helper()
		is := false
		for path, text := range r.files() {
			for _, s := range append(stretches(query, stems), stretches(long, strings.Fields(long))...) {
				if bytes.Contains(text, s) {
					if is = true; !want {
						t.Errorf("%s: %s has %q", what, filepath.Base(path), s)
					}
				}
			}
		}
		if want && !is {
			t.Errorf("%s: the query is found nowhere, so the test does not look where it is", what)
		}
	}
	inFile := func(query string, want int) {
		t.Helper()
		d, err := sql.Open("sqlite", r.settings.db.Path)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
			n := -1
			if err := d.QueryRow(query).Scan(&n); err == nil && n == want {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: %d, want %d", query, n, want)
			}
		}
	}
	var ids []string
	for range 30 {
		ids = append(ids, alice.mustFind(`{"query":"`+query+`","limit":100,"highlight":true}`).RequestID)
	}
	for i, id := range ids[:20] {
		s := alice.mustSend(carol, fmt.Sprintf(`"search_id":%q`, id), `"ttl_seconds":30000`)
		if i%2 == 0 { // the others expire
			carol.mustAck(s.MessageID, "completed").want(200)
		}
	}
	inFile("SELECT count(*) FROM search WHERE answer <> '' AND words <> ''", 30)
	inFile("SELECT count(*) FROM message WHERE sought IS NOT NULL", 10)
	found("while it is live", true)
	carol.wantWords("besid 3", "hangar 3", "moor 3", "urgent 3", "zeppelin 3")

	id := alice.mustFind(`{"query":"` + long + `"}`).RequestID
	for range uncounted {
		s := alice.mustSend(dave, fmt.Sprintf(`"search_id":%q`, id))
		dave.mustAck(s.MessageID, "completed").want(200)
	}
	inFile("SELECT count(*) FROM exchange", uncounted)
	dave.mustDescribe(`{"description":"tunes a harpsichord","learn":false}`)
	inFile("SELECT count(*) FROM exchange", 0)

	r.clock.advance(relay.SearchLife + 2*time.Minute)
	inFile("SELECT count(*) FROM search WHERE answer <> ''", 0)
	inFile("SELECT count(*) FROM search WHERE words <> ''", 31) // a message may still name them
	r.clock.advance(relay.FoundLife)
	inFile("SELECT count(*) FROM search WHERE words <> ''", 0)
	inFile("SELECT count(*) FROM message WHERE sought IS NOT NULL", 0)
	inFile("SELECT count(*) FROM exchange", 0)
	inFile("SELECT sum(words) FROM learned", 5)
	r.stop()
	found("once its time is over", false)
}
