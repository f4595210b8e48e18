package search_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"relay/db/relay"
	"relay/db/scratch"
	"relay/search"
)

// The promises of ranking that a profile's author may try to get around
// (PROTOCOL §5), in directories of every size: an exact name is first, an exact
// skill beats whatever repeats the words, a misspelled name is in the first
// three, presence lifts nobody weak over somebody exact.

// directorySizes are the sizes of small servers, which most are.
var directorySizes = []int{5, 20, 56, 200}

// stuffings are the ways to say a query as often as a profile allows.
var stuffings = map[string]func(e *relay.Entry, query string){
	"description": func(e *relay.Entry, q string) { e.Description = repeated(q, 2000) },
	"description, 125 times": func(e *relay.Entry, q string) {
		e.Description = repeated(q, 125*(len(q)+1))
	},
	"description, 3 times": func(e *relay.Entry, q string) { e.Description = q + ", " + q + ", " + q },
	"one word of it": func(e *relay.Entry, q string) {
		e.Description = repeated(strings.Fields(q)[0], 2000)
		e.Tags = []string{strings.Fields(q)[0]}
	},
	"details": func(e *relay.Entry, q string) { e.Details = repeated(q, 16_000) },
	"examples": func(e *relay.Entry, q string) {
		for range 10 {
			e.Examples = append(e.Examples, repeated(q, 300))
		}
	},
	"tags": func(e *relay.Entry, q string) {
		for i := range 64 {
			e.Tags = append(e.Tags, fmt.Sprintf("%s/%d", q, i))
		}
	},
	"the same tag": func(e *relay.Entry, q string) {
		for range 64 {
			e.Tags = append(e.Tags, q)
		}
	},
	"words as tags": func(e *relay.Entry, q string) { e.Tags = strings.Fields(repeated(q, 200)) },
	"display name":  func(e *relay.Entry, q string) { e.DisplayName = repeated(q, 200) },
	"display name, twice": func(e *relay.Entry, q string) {
		e.DisplayName = q + " " + q
	},
	"name": func(e *relay.Entry, q string) {
		e.Address = relay.Address(strings.ReplaceAll(q, " ", "-") + "-" + strings.ReplaceAll(q, " ", "-") + "^spam")
	},
	"skill names": func(e *relay.Entry, q string) {
		for i := range 100 {
			e.Skills = append(e.Skills, relay.Skill{ID: fmt.Sprint(i), Name: repeated(q, 200)})
		}
	},
	"100 skills of this name": func(e *relay.Entry, q string) {
		for i := range 100 {
			e.Skills = append(e.Skills, relay.Skill{ID: fmt.Sprint(i), Name: q})
		}
	},
	"skill descriptions": func(e *relay.Entry, q string) {
		for i := range 20 {
			e.Skills = append(e.Skills, relay.Skill{ID: fmt.Sprint(i), Name: fmt.Sprint("skill ", i), Description: repeated(q, 2000)})
		}
	},
	"skill tags and examples": func(e *relay.Entry, q string) {
		for i := range 20 {
			e.Skills = append(e.Skills, relay.Skill{ID: fmt.Sprint(i), Name: fmt.Sprint("skill ", i), Tags: []string{q, q, q}, Examples: []string{repeated(q, 300)}})
		}
	},
	"everything": func(e *relay.Entry, q string) {
		e.Address = relay.Address(strings.ReplaceAll(q, " ", "-") + "-1^spam")
		e.DisplayName, e.Description, e.Details = q+" "+q, repeated(q, 2000), repeated(q, 16_000)
		for i := range 64 {
			e.Tags = append(e.Tags, fmt.Sprintf("%s/%d", q, i))
		}
		for range 10 {
			e.Examples = append(e.Examples, repeated(q, 300))
		}
		for i := range 20 {
			e.Skills = append(e.Skills, relay.Skill{ID: fmt.Sprint(i), Name: q + " " + q, Description: repeated(q, 500), Tags: []string{q}, Examples: []string{q}})
		}
	},
	"a little of everything": func(e *relay.Entry, q string) {
		e.Address = relay.Address(strings.ReplaceAll(q, " ", "-") + "-1^spam")
		e.DisplayName, e.Description, e.Details = q+" pro", q, q
		e.Tags, e.Examples = []string{q}, []string{q}
		e.Skills = []relay.Skill{{ID: "1", Name: q + " pro", Description: q, Tags: []string{q}, Examples: []string{q}}}
	},
}

// repeated is the text as often as it fits into so many characters.
func repeated(text string, most int) string {
	return strings.TrimSpace(strings.Repeat(text+" ", (most+1)/(len(text)+1)))
}

var exactSkills = []string{"Invoice reading", "Sourdough", "Quarterly tax filing"}

// directory is so many Mechas: the known ones, and others, some of whom use
// the words too if they are common.
func directory(t testing.TB, size int, common string, known ...relay.Entry) []relay.Entry {
	g := newGenerator(t, uint64(size))
	list := g.entries(max(size-len(known), 0))
	words := strings.Fields(strings.ToLower(common))
	for i := range list {
		if len(words) > 0 && i%3 == 0 {
			list[i].Description += " " + words[i/3%len(words)] + " " + g.word()
		}
		if len(words) > 0 && i%10 == 0 {
			list[i].Skills[0].Description += " " + strings.Join(words, " ")
		}
	}
	for i, e := range known {
		e.Number = relay.MechaNumber(100_000 + i)
		list = append(list, e)
	}
	return list
}

// wantFirst reports a query that does not put this one first.
func wantFirst(t *testing.T, x *search.Index, req search.Request, want string) {
	t.Helper()
	req.Explain = true
	r := mustSearch(t, x, req)
	if len(r.Hits) == 0 || string(r.Hits[0].Address) != want {
		t.Errorf("%q finds %v", req.Query, addresses(r)[:min(len(r.Hits), 3)])
		for _, h := range r.Hits[:min(len(r.Hits), 2)] {
			t.Logf("%s %v %+v", h.Address, h.Score, *h.Explanation)
		}
	}
}

func skilled(name string) relay.Entry {
	e := mecha(0, "sam^acme", "A helper for the office and the kitchen.")
	e.Skills = []relay.Skill{{ID: "other", Name: "Looking after plants", Description: "Waters them"},
		{ID: "it", Name: name, Description: "Does this well and fast"}}
	return e
}

// oneOfThem makes each of the ways to stuff a Mecha of its own, so many times.
func oneOfThem(query string, times int) []relay.Entry {
	var list []relay.Entry
	for _, name := range slices.Sorted(maps.Keys(stuffings)) {
		for i := range times {
			e := mecha(0, fmt.Sprintf("aa-%d-%d^spam", len(list), i), "Buys and sells.")
			stuffings[name](&e, query)
			if strings.HasSuffix(string(e.Address), "^spam") {
				e.Address += relay.Address(fmt.Sprint(len(list)))
			}
			list = append(list, e)
		}
	}
	return list
}

func wantSkill(t *testing.T, x *search.Index, skill string) {
	t.Helper()
	for _, q := range []string{strings.ToLower(skill), skill, "who can do " + skill + " for me?"} {
		wantFirst(t, x, search.Request{Query: q}, "sam^acme")
	}
}

// In its short form each stuffing meets each size of directory with one of the skills,
// and each skill, common and not, meets a third of the stuffings: all that meet the same
// directory are in it together.
func TestNoStuffingBeatsAnExactSkill(t *testing.T) {
	t.Parallel()
	for i, size := range directorySizes {
		for j, skill := range exactSkills {
			for k, common := range []string{"", skill} {
				var together []string
				for n, name := range slices.Sorted(maps.Keys(stuffings)) {
					switch { // a part of all, in which each stuffing, size and skill is
					case scratch.Long(t) && os.Getenv("RELAY_TEST_FULL") != "": // all
					case scratch.Long(t) && (i+n)%2 != k, !scratch.Long(t) && (i+n)%6 != 2*j+k, testing.Short() && n%5 != 0:
						continue
					}
					if !scratch.Long(t) {
						together = append(together, name)
						continue
					}
					t.Run(fmt.Sprintf("%d/%s/common=%v/%s", size, skill, common != "", name), func(t *testing.T) {
						wantNotBeaten(t, size, skill, common, name)
					})
				}
				if len(together) > 0 {
					t.Run(fmt.Sprintf("%d/%s/common=%v", size, skill, common != ""), func(t *testing.T) {
						wantNotBeaten(t, size, skill, common, together...)
					})
				}
			}
		}
	}
}

// wantNotBeaten puts a Mecha with a skill into a directory with Mechas that are stuffed with it in these ways.
func wantNotBeaten(t *testing.T, size int, skill, common string, ways ...string) {
	t.Helper()
	known, loud := []relay.Entry{skilled(skill)}, map[relay.MechaNumber]bool{}
	for i, name := range ways {
		spam := mecha(0, fmt.Sprintf("aa-%d^spam", i), "Buys and sells.")
		stuffings[name](&spam, strings.ToLower(skill))
		known = append(known, spam)
	}
	entries := directory(t, size, common, known...)
	for i, name := range ways {
		if name != "100 skills of this name" { // which has the skill: presence decides between the two
			loud[entries[len(entries)-len(ways)+i].Number] = true
		}
	}
	x := mustIndex(t, entries, 5000)
	wantSkill(t, x, skill)
	if len(loud) > 0 {
		wantFirst(t, x, search.Request{Query: skill, Online: func(id relay.MechaNumber) bool { return loud[id] }}, "sam^acme")
	}
}

// In a large directory there may be more stuffed profiles than are looked at closely.
func TestNoCrowdOfStuffersHidesAnExactSkill(t *testing.T) {
	t.Parallel()
	for _, skill := range exactSkills[:amount(t, 1, len(exactSkills))] {
		t.Run(skill, func(t *testing.T) {
			known := append(oneOfThem(strings.ToLower(skill), 20), skilled(skill))
			wantSkill(t, mustIndex(t, directory(t, max(amount(t, 1000, 3000), 1000), skill, known...), 5000), skill)
		})
	}
}

// A name beats an exact skill and all stuffing; misspelled it is in the first
// three. Both hold for a Mecha that is away, with all others present. In the short form
// each size has one of the two names.
func TestNamesInDirectoriesOfEverySize(t *testing.T) {
	t.Parallel()
	for i, size := range append(directorySizes, amount(t, 400, 3000)) {
		for n, name := range []string{"plumber", "tax-adviser"} {
			if !scratch.Long(t) && i%2 != n {
				continue // in turn, from size to size
			}
			t.Run(fmt.Sprint(size, "/", name), func(t *testing.T) {
				query := strings.ReplaceAll(name, "-", " ")
				known := append(oneOfThem(query, 1), skilled(query), mecha(0, name+"^acme", "Does its work."))
				entries := directory(t, size, query, known...)
				x := mustIndex(t, entries, 5000)
				online := func(id relay.MechaNumber) bool { return id != entries[len(entries)-1].Number }
				for _, q := range []string{name, query, strings.ToUpper(name), name + "^acme"} {
					wantFirst(t, x, search.Request{Query: q, Online: online}, name+"^acme")
				}
				alone := directory(t, size, "", skilled("Something else"), mecha(0, name+"^acme", "Does its work."))
				x = mustIndex(t, alone, 5000)
				online = func(id relay.MechaNumber) bool { return id != alone[len(alone)-1].Number }
				for i := 1; i < len(name); i++ {
					q := name[:i] + name[i+1:]
					if name[i] == '-' {
						continue
					}
					found := addresses(mustSearch(t, x, search.Request{Query: q, Online: online}))
					if !slices.Contains(found[:min(len(found), 3)], name+"^acme") {
						t.Errorf("%q finds %v", q, found)
					}
				}
			})
		}
	}
}
