package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"relay/db"
	"relay/db/relay"
)

// search measures searches in generated profiles, whose words are as frequent as
// the words of natural text.
func (b *bench) search(ctx context.Context) error {
	s, err := b.durable(ctx)
	if err != nil {
		return err
	}
	v := newVocabulary()
	if b.URL == "" {
		if err := b.registerProfiles(ctx, s, v); err != nil {
			return err
		}
	}
	for _, n := range []int{1, 8} {
		rounds, err := b.rounds(func() (*sample, error) {
			return b.runOn(ctx, s, fmt.Sprintf("search, %d connections", n), n, func(i int, c *conn) operation {
				return searcher(c, s.mechas[i%len(s.mechas)], v.queries(uint64(i)))
			})
		})
		if err != nil {
			return err
		}
		name := fmt.Sprintf("%d profiles", b.Profiles)
		if b.URL != "" {
			name = "its own profiles"
		}
		b.add(loadRow("search", name, n, "searches", rounds))
	}
	return nil
}

func searcher(c *conn, m *mecha, queries [][]byte) operation {
	i := 0
	return func() (done, error) {
		i++
		_, err := c.do(m, "POST", searchPath, queries[i%len(queries)], http.StatusOK)
		return done{units: 1}, err
	}
}

// registerProfiles registers Mechas with profiles, unless they are there, and
// waits until searches find them.
func (b *bench) registerProfiles(ctx context.Context, s *server, v *vocabulary) error {
	return b.connect(ctx, s, func(c *conn) error {
		if profilesFound(c, s.mechas[0]) >= b.Profiles {
			return nil
		}
		b.Progress(fmt.Sprintf("registering %d profiles", b.Profiles), 0)
		if err := b.putProfiles(ctx, s, v); err != nil {
			return err
		}
		return b.awaitProfiles(ctx, c, s.mechas[0])
	})
}

// putProfiles writes the profiles of Mechas, which it registers.
func (b *bench) putProfiles(ctx context.Context, s *server, v *vocabulary) error {
	return b.withDB(s, func(d *db.DB) error {
		return inParallel(ctx, b.Profiles, func(i int) error {
			p := v.profile(uint64(i))
			return d.PutProfile(&relay.PutProfile{At: time.Now(), Address: profiled(i), Register: true, Profile: p.Stored()})
		})
	})
}

// awaitProfiles waits until searches of a Mecha find all profiles.
func (b *bench) awaitProfiles(ctx context.Context, c *conn, m *mecha) error {
	late := time.Now().Add(5 * time.Minute)
	for time.Now().Before(late) {
		found := profilesFound(c, m)
		if found >= b.Profiles {
			return nil
		}
		b.Progress(fmt.Sprintf("indexing profiles, %d of %d", found, b.Profiles), 0)
		if !sleep(time.Now().Add(showEvery), ctx.Done()) {
			return ctx.Err()
		}
	}
	return fmt.Errorf("the index still lacks some of the %d profiles", b.Profiles)
}

// profilesFound returns how many profiles the index has. It searches for a word
// that all of them have.
func profilesFound(c *conn, m *mecha) int {
	answer, err := c.do(m, "POST", searchPath, []byte(`{"query":"`+commonWord+`","limit":1}`), http.StatusOK)
	var found struct{ Total int }
	if err != nil || json.Unmarshal(answer, &found) != nil {
		return 0
	}
	return found.Total
}

func profiled(i int) relay.Address { return relay.Address(fmt.Sprintf("agent%06d^%s", i, profileCrew)) }

// vocabulary has invented words, the most frequent first.
type vocabulary struct {
	words []string
	sums  []float64 // of the frequencies up to each word
}

const (
	commonWord = "benchmarked"
	words      = 8000
)

func newVocabulary() *vocabulary {
	r := rand.New(rand.NewPCG(1, 1))
	v := &vocabulary{}
	sum := 0.0
	for i := range words {
		var b strings.Builder
		for range 2 + r.IntN(3) {
			b.WriteByte("bcdfghklmnprstvz"[r.IntN(16)])
			b.WriteByte("aeiou"[r.IntN(5)])
		}
		v.words = append(v.words, b.String())
		sum += 1 / math.Pow(float64(i+3), 0.9) // Zipf's law; the offset avoids a word that is in every text
		v.sums = append(v.sums, sum)
	}
	return v
}

func (v *vocabulary) text(r *rand.Rand, n int) string {
	list := make([]string, n)
	for i := range list {
		at, _ := slices.BinarySearch(v.sums, r.Float64()*v.sums[words-1])
		list[i] = v.words[min(at, words-1)]
	}
	return strings.Join(list, " ")
}

func (v *vocabulary) profile(seed uint64) relay.Profile {
	r := rand.New(rand.NewPCG(2, seed))
	p := relay.Profile{DisplayName: v.text(r, 2), Description: v.text(r, 12) + " " + commonWord, Details: v.text(r, 40),
		Tags: []string{v.text(r, 1)}}
	for i := range 1 + r.IntN(4) {
		p.Skills = append(p.Skills, relay.Skill{ID: fmt.Sprint("skill", i), Name: v.text(r, 2), Description: v.text(r, 12),
			Examples: []string{v.text(r, 6)}})
	}
	return p
}

// queries returns the bodies of searches, in turn for a rare word, three common
// words, and a sentence.
func (v *vocabulary) queries(seed uint64) (all [][]byte) {
	r := rand.New(rand.NewPCG(3, seed))
	common := func() string { return v.words[r.IntN(30)] }
	for range 100 {
		for _, q := range []string{v.words[words-1-r.IntN(words/2)], common() + " " + common() + " " + common(),
			"please find me someone who can " + v.text(r, 8)} {
			all = append(all, []byte(`{"query":"`+q+`"}`))
		}
	}
	return all
}
