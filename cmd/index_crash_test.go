package cmd_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// The promise of the search index: it is derived, so whatever happens to the
// process, what the directory has acknowledged is what a search finds. Mechas
// replace their profiles, some of them by commands of other processes, while
// the server is killed and started again; then each is found by the word of
// its latest profile, and by none of the words before.
func TestKilledWhileProfilesChangeItFindsWhatWasAcknowledged(t *testing.T) {
	notQuick(t)
	notOnWindows(t, "there is no kill -9")
	t.Parallel()
	n := rounds(t, 2, 20)
	c := newIndexCrash(t)
	for range n {
		c.round()
	}
	c.each(func(m *changer) { m.resolve(m.words) })
	c.report(n)
}

const (
	crashChangers = 12 // change their profiles over HTTP
	crashCommands = 2  // change them by relay mecha profile set
)

type indexCrash struct {
	t        *testing.T
	db       string
	server   *server
	asker    agent // who searches: a Mecha does not find itself
	changers []*changer

	acknowledged atomic.Int64 // changes of this round
	target       int64        // the number of acknowledged changes at which the server is killed
	kill         func()       // once is enough
	dead         chan struct{}
	unanswered   atomic.Int64 // changes without an answer that were kept
}

// changer is a Mecha whose profile changes. Each of its profiles has a word
// that no other has.
type changer struct {
	*indexCrash
	agent
	command bool
	words   []string // in the order in which they were sent
	latest  int      // the number of the last one acknowledged; -1: none
	checked int      // how many words have been resolved
}

func newIndexCrash(t *testing.T) *indexCrash {
	c := &indexCrash{t: t, db: tempDB(t)}
	c.asker = issue(t, c.db, "asker^change")[0]
	names := make([]string, crashChangers+crashCommands)
	for i := range names {
		names[i] = fmt.Sprintf("c%d^change", i)
	}
	for i, a := range issue(t, c.db, names...) {
		c.changers = append(c.changers, &changer{indexCrash: c, agent: a, command: i >= crashChangers, latest: -1})
	}
	c.start()
	return c
}

func (c *indexCrash) start() {
	c.server = startProcess(c.t, c.db, "--rate-limit", "0", "--auth-failure-limit", "0")
}

func (c *indexCrash) each(f func(*changer)) { allAtOnce(c.t, c.changers, f) }

// round works, kills, starts again, and resolves.
func (c *indexCrash) round() {
	c.acknowledged.Store(0)
	enough, kill := context.WithTimeout(c.t.Context(), patience)
	c.target, c.kill, c.dead = 10+rand.Int64N(140), kill, make(chan struct{})
	go func() {
		defer close(c.dead)
		<-enough.Done()
		if n := c.acknowledged.Load(); n < c.target {
			c.t.Errorf("only %d of %d changes were acknowledged", n, c.target)
		}
		time.Sleep(rand.N(20 * time.Millisecond)) // at any moment: a batch of the index takes about that
		c.server.kill()
	}()
	c.each((*changer).work)
	<-c.dead
	c.start()
	c.each(func(m *changer) {
		m.resolve(m.words[max(0, m.checked-1):])
		m.checked = len(m.words)
	})
}

// work changes the profile until the server is gone.
func (m *changer) work() {
	for {
		select {
		case <-m.dead:
			return
		default:
		}
		word := newWord()
		m.words = append(m.words, word)
		profile := fmt.Sprintf(`{"description":"knows %s","skills":[{"id":"s","name":"All about %s"}]}`, word, word)
		if m.command {
			m.set(profile)
		} else if !m.put(profile) {
			return
		}
		m.latest = len(m.words) - 1
		if m.acknowledged.Add(1) == m.target {
			m.kill()
		}
	}
}

// put reports whether there was an answer.
func (m *changer) put(profile string) bool {
	ans, err := m.request("PUT", "/api/v1/mecha/"+m.Address+"/profile", profile).to(m.server.url)
	if err == nil && ans.status != http.StatusOK {
		m.t.Errorf("%s: status %d: %s", m.Address, ans.status, ans.body)
		m.kill()
	}
	return err == nil
}

func (m *changer) set(profile string) {
	path := filepath.Join(filepath.Dir(m.db), m.Address+".json")
	if err := os.WriteFile(path, []byte(profile), 0o600); err != nil {
		m.t.Error(err)
	}
	if r := runRelay(m.t, "mecha", "profile", "set", m.Address, path, "--db", m.db); r.code != 0 {
		m.t.Errorf("%s: exit %d: %s", m.Address, r.code, r.err)
		m.kill()
	}
}

// resolve finds out which profile was kept, the last acknowledged or one sent
// after it, and expects that its word is found and that words before it are not.
func (m *changer) resolve(words []string) {
	if len(m.words) == 0 {
		return
	}
	kept := m.kept()
	if kept < m.latest {
		m.t.Errorf("%s: profile %d was acknowledged, and the directory has %d", m.Address, m.latest, kept)
		return
	}
	if kept < 0 { // the kill came before its first profile was written
		return
	}
	if kept > m.latest {
		m.unanswered.Add(1)
		m.latest = kept
	}
	for end := time.Now().Add(patience); !slices.Contains(m.server.found(m.asker, m.words[kept]), m.Address); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			m.t.Errorf("%s: profile %d was acknowledged, and %q does not find it", m.Address, kept, m.words[kept])
			return
		}
	}
	for _, word := range words {
		if word != m.words[kept] && slices.Contains(m.server.found(m.asker, word), m.Address) {
			m.t.Errorf("%s: %q finds it, which stands in another profile than number %d", m.Address, word, kept)
		}
	}
}

// kept returns the number of the profile that the directory has; -1: none that was sent.
func (m *changer) kept() int {
	got := parse[struct{ Description string }](m.t,
		m.server.ask(m.agent, "GET", "/api/v1/mecha/"+m.Address+"/profile", "").want(m.t, http.StatusOK))
	word, _ := strings.CutPrefix(got.Description, "knows ")
	return slices.Index(m.words, word)
}

func (c *indexCrash) report(rounds int) {
	changes := 0
	for _, m := range c.changers {
		changes += len(m.words)
	}
	c.t.Logf("%d kills, %d profiles, of which %d had no answer and were there", rounds, changes, c.unanswered.Load())
}

// newWord makes a word that no stemmer shortens and no typo makes another one.
func newWord() string {
	const letters = "bcdfghjkmnpqrtvwxz"
	word := make([]byte, 14)
	for i := range word {
		word[i] = letters[rand.IntN(len(letters))]
	}
	return string(word)
}

// found searches and gives the addresses that were found, the best first.
func (s *server) found(a agent, query string) (addresses []string) {
	s.t.Helper()
	result := parse[struct {
		Results []struct {
			MechaID string `json:"mecha_id"`
		}
	}](s.t, s.search(a, query))
	for _, r := range result.Results {
		addresses = append(addresses, r.MechaID)
	}
	return addresses
}

// search returns the answer to a search. If the relay refuses it because of other
// searches at the same time, it tries again, as the relay tells it to.
func (s *server) search(a agent, query string) []byte {
	s.t.Helper()
	var ans answer
	eventually(s.t, patience, "a turn to search", func() bool {
		ans = s.ask(a, "POST", "/api/v1/search", fmt.Sprintf(`{"query":%q}`, query), "Prefer", "wait=5")
		return ans.code() != "overloaded" && ans.code() != "rate_limited"
	})
	return ans.want(s.t, http.StatusOK)
}
