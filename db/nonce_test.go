package db

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"relay/db/internal/engine"
	"relay/db/internal/replays"
	"relay/db/internal/sqlite"
	"relay/db/relay"
	"relay/db/ring"
	"relay/db/scratch"
)

// used is a key with the nonces that it has used, all with the same timestamp.
type used struct {
	key   *relay.Key
	count int
	stamp time.Time
}

func (u *used) nonce(i int) string { return fmt.Sprint("nonce-", i) }

// send sends n messages, each with a nonce of its own.
func (u *used) send(t *testing.T, d *DB, n int) {
	t.Helper()
	var all sync.WaitGroup
	for w := range 64 {
		all.Go(func() {
			for i := u.count + w; i < u.count+n; i += 64 {
				hash, err := d.Claim(u.key, u.nonce(i), u.stamp)
				m := &relay.SendMessage{At: d.w.Opts.Now(), Key: u.key.Number, To: u.key.Mecha.Address, Payload: []byte(`{}`), Nonce: hash}
				if err == nil {
					err = m.Validate()
				}
				if err == nil {
					_, err = d.Send(m)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	u.count += n
}

// wantUsed fails the test unless each nonce is refused and a fresh one is accepted.
func (u *used) wantUsed(t *testing.T, d *DB) {
	t.Helper()
	for i := range u.count {
		if _, err := d.Claim(u.key, u.nonce(i), u.stamp); relay.ErrorCode(err) != relay.NonceReused {
			t.Fatalf("nonce %d of %d: %v", i, u.count, err)
		}
	}
	if _, err := d.Claim(u.key, "fresh", u.stamp); err != nil {
		t.Error(err)
	}
}

// serving is a store on a file that is opened again and again, with a clock, and each
// time without its ring: so the nonces must come from the database.
type serving struct {
	*DB
	path  string
	clock atomic.Int64 // Unix seconds: the store reads it too
}

func (s *serving) now() time.Time { return time.Unix(s.clock.Load(), 0) }

func (s *serving) advance(d time.Duration) { s.clock.Add(int64(d / time.Second)) }

func (s *serving) open(t *testing.T) {
	t.Helper()
	if err := os.Remove(s.path + ring.Suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	s.DB = openHere(t, func(o *Options) {
		o.Serve, o.Now = true, s.now
		if s.path != "" {
			o.Path = s.path
		}
		s.path = o.Path
	})
}

func (s *serving) reopen(t *testing.T) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s.open(t)
}

// byHand closes the store, changes the file, and returns the number that the statement
// returns.
func (s *serving) byHand(t *testing.T, statement string) (n int64) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	c, err := sqlite.Open(s.path, sqlite.Writing)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Row(func(r *sqlite.Rows) { n = r.Int(0) }, statement); err != nil {
		t.Fatal(err)
	}
	return n
}

func mustServeHere(t *testing.T) (*serving, *used) {
	t.Helper()
	s := &serving{}
	s.clock.Store(time.Now().Unix())
	s.open(t)
	k, err := s.Issue(&relay.IssueKey{At: s.now(), Address: "a^nonces"})
	if err != nil {
		t.Fatal(err)
	}
	return s, &used{key: k.Key, stamp: s.now()}
}

func TestNoncesComeBackFromPagesAndFromRows(t *testing.T) {
	t.Parallel()
	s, u := mustServeHere(t)
	u.send(t, s.DB, 2*replays.FullNoncePage+engine.MaxBatch+3*replays.FewNonces) // two pages, and some that are in none
	s.reopen(t)
	u.wantUsed(t, s.DB)
	if pages := s.byHand(t, "SELECT count(*) FROM nonce_page"); pages != 2 {
		t.Errorf("%d pages", pages)
	}
	// Now only the pages have the nonces.
	if n := s.byHand(t, "UPDATE message SET nonce = 1 WHERE position <= (SELECT max(position) FROM nonce_page) RETURNING 1"); n != 1 {
		t.Fatal("no rows were covered")
	}
	s.open(t)
	u.wantUsed(t, s.DB)
}

func TestNoncesThatNoPageCoversAreReadFromTheirRows(t *testing.T) {
	t.Parallel()
	for _, gone := range []string{"max", "min"}[:scratch.Amount(t, 1, 2)] {
		s, u := mustServeHere(t)
		u.send(t, s.DB, 2*replays.FullNoncePage+engine.MaxBatch+1)
		if s.byHand(t, "DELETE FROM nonce_page WHERE position = (SELECT "+gone+"(position) FROM nonce_page) RETURNING 1") != 1 {
			t.Fatal("there was no page")
		}
		s.open(t)
		u.wantUsed(t, s.DB)
	}
}

// failedCommit is a local write that leaves the nonces as a failed COMMIT does.
type failedCommit struct{ *replays.Replays }

func (failedCommit) Size() int { return 0 }
func (f failedCommit) Apply(t *engine.Tx) error {
	f.Open, f.Tried = true, t.Last
	return nil
}

func TestNoPageCoversATransactionThatFailed(t *testing.T) {
	t.Parallel()
	s, u := mustServeHere(t)
	u.send(t, s.DB, 2*replays.FewNonces)
	if err := s.wait(failedCommit{s.Replays}); err != nil {
		t.Fatal(err)
	}
	before, err := s.Latest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	u.send(t, s.DB, replays.FullNoncePage+engine.MaxBatch+1)
	if n := s.byHand(t, fmt.Sprintf("SELECT count(*) FROM nonce_page WHERE after < %d", before)); n != 0 {
		t.Error("a page covers it")
	}
	s.open(t)
	u.wantUsed(t, s.DB)
}

func TestAPageIsWrittenWhenItIsOld(t *testing.T) {
	t.Parallel()
	s, u := mustServeHere(t)
	u.send(t, s.DB, replays.FewNonces)
	s.advance(replays.OldNoncePage + time.Second)
	u.send(t, s.DB, 1)
	s.advance(replays.OldNoncePage + time.Second) // one nonce is too few for a page
	u.send(t, s.DB, 1)
	s.reopen(t)
	u.wantUsed(t, s.DB)
	if pages := s.byHand(t, "SELECT count(*) FROM nonce_page"); pages != 1 {
		t.Errorf("%d pages", pages)
	}
	// The page is deleted when none of its nonces could be replayed.
	s.advance(2 * replays.NonceKept)
	s.open(t)
	u.send(t, s.DB, replays.FullNoncePage+engine.MaxBatch+1)
	if pages := s.byHand(t, "SELECT count(*) FROM nonce_page"); pages != 1 {
		t.Errorf("%d pages", pages)
	}
}

// A Mecha's newer searches delete the rows of its older ones, with their nonces. Those
// nonces must still be refused.
func TestNoncesOfSearchesOutliveTheirRows(t *testing.T) {
	t.Parallel()
	s, u := mustServeHere(t)
	done := make(chan error)
	for range max(replays.FewNonces, 200) {
		hash, err := s.Claim(u.key, u.nonce(u.count), u.stamp)
		if err != nil {
			t.Fatal(err)
		}
		u.count++
		s.SaveSearch(&relay.SaveSearch{At: s.now(), ID: relay.NewSearchID(), Mecha: u.key.Mecha.Number, Answer: []byte("{}"), Nonce: hash}, func(err error) { done <- err })
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	u.send(t, s.DB, 1)
	s.advance(replays.OldNoncePage + time.Second)
	u.send(t, s.DB, 1) // brings the page
	s.reopen(t)
	u.wantUsed(t, s.DB)
}

// A page has the nonces of all kinds of writes: the rows of the writes that it covers are not
// read.
func TestAPageHasTheNoncesOfClaims(t *testing.T) {
	t.Parallel()
	s, u := mustServeHere(t)
	u.send(t, s.DB, 1)
	hash, err := s.Claim(u.key, u.nonce(u.count), u.stamp)
	if err != nil {
		t.Fatal(err)
	}
	u.count++
	claimed, err := s.ClaimMessages(t.Context(), &relay.ClaimMessages{At: s.now(), Key: u.key.Number, Limit: 1, Lease: time.Hour, Nonce: hash})
	if err != nil || len(claimed) != 1 {
		t.Fatal(claimed, err)
	}
	u.send(t, s.DB, replays.FewNonces)
	s.advance(replays.OldNoncePage + time.Second)
	u.send(t, s.DB, 1)
	s.reopen(t)
	u.wantUsed(t, s.DB)
}

func TestWritesThatChangeNothingMakeNoPage(t *testing.T) {
	t.Parallel()
	s, u := mustServeHere(t)
	u.send(t, s.DB, 1)
	p, err := s.History(t.Context(), relay.HistoryQuery{Mecha: u.key.Mecha.Number, Limit: 1})
	if err != nil || len(p.Messages) != 1 {
		t.Fatal(p, err)
	}
	var all sync.WaitGroup
	for range 64 { // the same delivery, again and again
		all.Go(func() {
			for i := range replays.FullNoncePage / 32 {
				if _, err := s.MarkDelivered(&relay.MarkDelivered{At: s.now(), Key: u.key.Number, ID: p.Messages[0].ID, Nonce: relay.NonceHash(2*i + 1)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	u.send(t, s.DB, replays.FullNoncePage)
	s.reopen(t)
	u.wantUsed(t, s.DB)
}

func TestARestoredNonceIsFreeAfterItsWindow(t *testing.T) {
	t.Parallel()
	s, u := mustServeHere(t)
	u.send(t, s.DB, replays.FullNoncePage+engine.MaxBatch+10)
	s.advance(time.Minute)
	late := &used{key: u.key, count: u.count, stamp: s.now()}
	late.send(t, s.DB, 1)
	s.reopen(t)
	window := s.opts.ClockSkew + relay.MaxClockSkew
	s.advance(window - time.Minute)
	late.wantUsed(t, s.DB)
	s.advance(10 * time.Second) // nonces may be remembered some seconds longer
	for i := range u.count {
		if _, err := s.Claim(u.key, u.nonce(i), s.now()); err != nil {
			t.Fatalf("nonce %d: %v", i, err)
		}
	}
	if _, err := s.Claim(u.key, late.nonce(late.count-1), s.now()); relay.ErrorCode(err) != relay.NonceReused {
		t.Error(err)
	}
}

func TestNonces(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	n := replays.NewNonces(3, now)
	until := now.Add(5 * time.Minute)
	for h := range relay.NonceHash(3) {
		if err := n.Claim(h+1, now, until); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.Claim(1, until, until); relay.ErrorCode(err) != relay.NonceReused {
		t.Errorf("a second use got %v", err)
	}
	if err := n.Claim(9, now, until); relay.ErrorCode(err) != relay.Overloaded {
		t.Errorf("a nonce beyond the bound got %v", err)
	}
	later := until.Add(replays.NonceSweep + 2*time.Second)
	if err := n.Claim(1, later, later.Add(time.Minute)); err != nil {
		t.Errorf("a nonce whose time is over got %v", err)
	}
}

// A start says that it refuses earlier requests if the file of used nonces may lack some.
// The next start does not, though its running time is still that of the start before.
func TestOnlyAStartThatMayLackNoncesSaysSo(t *testing.T) {
	d, c := openSetClock(t)
	path := d.w.Path
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	for _, removed := range []bool{false, true, false} {
		if removed {
			if err := os.Remove(path + ring.Suffix); err != nil {
				t.Fatal(err)
			}
		}
		log := &bytes.Buffer{}
		d = openHere(t, c.tells, func(o *Options) { o.Path, o.Logger = path, slog.New(slog.NewTextHandler(log, nil)) })
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		if said := strings.Contains(log.String(), "signed before this start"); said != removed {
			t.Errorf("the file was removed: %v; the log says: %s", removed, log)
		}
	}
}
