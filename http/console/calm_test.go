package console_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"relay/db/look/survey"
	"relay/db/relay"
	"relay/db/scratch"
	"relay/http/console"
)

// watched is a Store that counts some of the reads, and can hold them up.
type watched struct {
	console.Store
	overviews, looks atomic.Int64
	backs            chan struct{} // Back waits for its end; nil: it does not wait
	fails            atomic.Bool   // Changed fails
	hangs            sync.Mutex    // Changed waits while a test holds it
}

func (w *watched) Overview(ctx context.Context, late time.Time) (survey.Overview, error) {
	w.overviews.Add(1)
	return w.Store.Overview(ctx, late)
}

func (w *watched) Changed() (bool, error) {
	w.looks.Add(1)
	w.hangs.Lock()
	defer w.hangs.Unlock()
	if w.fails.Load() {
		return false, fmt.Errorf("the disk is gone")
	}
	return w.Store.Changed()
}

func (w *watched) Back(since time.Time, most int) (relay.Position, error) {
	if w.backs != nil {
		<-w.backs
	}
	return w.Store.Back(since, most)
}

// watch is an option of a stage that puts w before its store.
func (w *watched) watch(c *console.Config) { w.Store, c.Store = c.Store, w }

// While nobody asks for a page, the console does not count what waits, for however long it runs.
func TestNothingIsCountedWhileNobodyLooks(t *testing.T) {
	t.Parallel()
	w := &watched{}
	var hours atomic.Int64
	s := mustStage(t, true, w.watch, func(c *console.Config) {
		c.Now = func() time.Time { return time.Now().Add(time.Duration(hours.Add(1)) * time.Hour) }
	})
	for end := time.Now().Add(patience); w.looks.Load() < 3; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the console does not follow its file")
		}
	}
	if n := w.overviews.Load(); n != 0 {
		t.Errorf("the waiting messages were counted %d times for nobody", n)
	}
	if status, _ := s.get(s.enter(), "/"); status != http.StatusOK || w.overviews.Load() == 0 {
		t.Error("not for a page, either: ", status)
	}
}

// A page that is made before the console has counted the last hour is not told again of what it
// shows, nor of what is older.
func TestAnEarlyPageIsNotToldTheOld(t *testing.T) {
	t.Parallel()
	w := &watched{backs: make(chan struct{})}
	s := mustStage(t, true)
	alice := s.mustIssue("alice^demo", "")
	for n := range 50 {
		s.mustSend(time.Hour-time.Duration(n)*time.Second, alice, "alice^demo", `{}`)
	}
	s.show(true, "127.0.0.1:0", w.watch)
	c := s.enter()
	_, page := s.get(c, "/")
	close(w.backs)
	_, page, _ = strings.Cut(page, `data-cursor="`)
	cursor, _, _ := strings.Cut(page, `"`)
	for end := time.Now().Add(patience); w.looks.Load() < 2; time.Sleep(20 * time.Millisecond) { // the hour is counted
		if time.Now().After(end) {
			t.Fatal("the console does not follow its file")
		}
	}
	if _, text := s.get(c, "/events?after="+cursor); !strings.Contains(text, `"total":0,`) {
		t.Errorf("after %s: %s", cursor, text)
	}
}

// A page that has its socket, or polls, says so if the console cannot read the file, or does not
// come back from reading it, and since when. It is live again when all is read.
func TestAPageSaysThatNothingIsRead(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"fails", "hangs"} {
		if how == "hangs" && !scratch.Long(t) {
			continue // the page waits ten seconds for a sign of life
		}
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			w := &watched{}
			goOn := func() { w.fails.Store(false) }
			var past atomic.Int64
			s := mustStage(t, true, w.watch, func(c *console.Config) {
				c.Now = func() time.Time { return time.Now().Add(time.Duration(past.Load())) }
			})
			t.Cleanup(func() { goOn() })
			b := mustOpen(t)
			b.open(s.entry("/"))
			b.await(isLive)
			says := "the database cannot be read since "
			if how == "hangs" {
				w.hangs.Lock()
				goOn = sync.OnceFunc(w.hangs.Unlock)
				past.Store(int64(time.Minute))
				says = "nothing new is read for 1 min"
			} else {
				w.fails.Store(true)
			}
			b.await(`document.querySelector("#link").dataset.state == "lost" && document.querySelector("#link-text").textContent.startsWith("` + says + `")`)
			goOn()
			b.await(isLive)
		})
	}
}

// Until the last hour is counted, a page says so: it tells no count of it, and draws nothing. Then
// it is fetched again on its own.
func TestAPageSaysThatTheHourIsBeingCounted(t *testing.T) {
	t.Parallel()
	w := &watched{backs: make(chan struct{})}
	goOn := sync.OnceFunc(func() { close(w.backs) })
	s := mustStage(t, true)
	alice := s.mustIssue("alice^demo", "")
	s.mustSend(20*time.Minute, alice, "alice^demo", `{}`)
	s.mustAck(19*time.Minute, alice, s.mustSend(20*time.Minute, alice, "alice^demo", `{}`), "failed", "")
	s.show(true, "127.0.0.1:0", w.watch)
	t.Cleanup(goOn)
	_, page := s.get(s.enter(), "/")
	if text := words(page); !strings.Contains(text, "The last hour is being counted.") || strings.Contains(text, "in the last hour") {
		t.Errorf("before it is counted: %s", text)
	}
	if n := strings.Count(page, `<path class="line" d=""/>`); n != 4 {
		t.Errorf("%d of 4 plots are drawn as unknown", n)
	}
	b := mustOpen(t)
	b.open(s.entry("/"))
	b.await(isLive)
	b.await(`document.querySelector("#verdict").textContent.includes("is being counted")`)
	goOn()
	b.await(`document.querySelector("#verdict").textContent.includes("2 messages in the last hour") && !document.querySelector("#verdict").textContent.includes("counted")`)
	if drawn := b.eval(`document.querySelector("#plots .line").getAttribute("d") != ""`); drawn != "true" {
		t.Error("the plots are not drawn")
	}
}

// slow is a Store that counts few events at once.
type slow struct{ *watched }

func (s slow) Activity(after relay.Position, span time.Duration, limit int) (survey.Activity, error) {
	return s.watched.Activity(after, span, min(limit, 150))
}

// Of more events than are counted at once, the count continues where it was: none is left out.
func TestABurstIsCountedWhole(t *testing.T) {
	t.Parallel()
	const burst = 1000
	w := &watched{}
	w.hangs.Lock()
	goOn := sync.OnceFunc(w.hangs.Unlock)
	s := mustStage(t, true, w.watch, func(c *console.Config) { c.Store = slow{w} })
	t.Cleanup(goOn)
	alice := s.mustIssue("alice^demo", "")
	visitor := s.enter()
	for end := time.Now().Add(patience); w.looks.Load() == 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the console does not follow its file")
		}
	}
	s.mustSendMany(alice, "alice^demo", burst)
	goOn()
	s.await(visitor, "/", `1 000 messages in the last hour`)
}

// While nobody looks, the console reads its file seldom. The first page has what happened since, all
// the same: it does not say 0 next to a row.
func TestTheFirstPageHasCountedWhatItShows(t *testing.T) {
	t.Parallel()
	w := &watched{}
	s := mustStage(t, true, w.watch)
	alice := s.mustIssue("alice^demo", "")
	for end := time.Now().Add(patience); w.looks.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the console does not follow its file")
		}
	}
	s.mustSend(20*time.Minute, alice, "alice^demo", `{}`)
	visitor := s.enter()
	_, page := s.get(visitor, "/")
	// On a busy machine, a look takes longer than a page waits.
	if text := words(page); !strings.Contains(text, "1 message in the last hour.") && !strings.Contains(text, "The last hour is being counted.") {
		t.Errorf("the first page: %s", text)
	}
	s.await(visitor, "/", `1 message in the last hour\.`)
}
