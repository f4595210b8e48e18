package console_test

import (
	"net/url"
	"strings"
	"testing"
)

// In a server, the directory is searched by its index, and the page says why a Mecha is found,
// and where.
func TestTheDirectoryIsSearched(t *testing.T) {
	p := mustPlay(t, true)
	c := p.enter()
	_, page := p.get(c, "/directory?q="+url.QueryEscape("book a courier"))
	wantText(t, "the search", words(page), "3 Mechas are found.", "1 bob^demo Warehouse", "Why this rank", "Coarse (BM25)", "matched book courier in description, skills.name, skill book", "demo 2", "logistics/shipping 1", "en 2")
	if !strings.Contains(page, "<mark>courier</mark>") || !strings.Contains(page, `href="/mecha/bob%5edemo"`) || strings.Index(page, "bob^demo") > strings.Index(page, "carol^demo") {
		t.Error("nothing is marked, or bob is not the first")
	}
	for query, says := range map[string][]string{
		"q=courier&crew=lab":             {"No Mecha is found.", "Crew: lab"},
		"tag=science":                    {"1 Mecha is found.", "erin^lab"},
		"q=courier&online=yes":           {"1 Mecha is found.", "carol^demo", "online"},
		"q=corier":                       {"Searched for: courier."},
		"q=courier&as=bob%5Edemo":        {"1 Mecha is found.", "carol^demo"},
		"q=courier&as=nonsense":          {"“Search as” takes the address of a Mecha"},
		"q=courier&sort=upside":          {"The search was refused: "},
		"":                               {"All Mechas, by address.", "alice^demo", "frank^lab"},
		"q=" + strings.Repeat("x", 3000): {"The search was refused: "},
	} {
		_, page := p.get(c, "/directory?"+query)
		wantText(t, query[:min(len(query), 40)], words(page), says...)
	}
}

// Next to a server, only the profiles of the file can be looked through, and the page says so.
func TestWithoutAnIndexTheProfilesAreListed(t *testing.T) {
	p := mustPlay(t, false)
	c := p.enter()
	_, page := p.get(c, "/directory?q="+url.QueryEscape("COURIER archive"))
	wantText(t, "the page", words(page), "Only the server has the search index", "These profiles have all the words.", "carol^demo Fetcher")
	if strings.Contains(page, "erin^lab") || strings.Contains(page, "bob^demo") || strings.Contains(page, `name="as"`) {
		t.Error("others are listed")
	}
	_, page = p.get(c, "/directory?q=nothing-has-this")
	wantText(t, "a search for nothing", words(page), "No profile has all these words.")
	for i := range 45 {
		p.mustIssue(address("m%02d^crowd", i), "")
	}
	n, path := 0, "/directory"
	for pages := 0; path != "" && pages < 9; pages++ {
		_, page = p.get(c, path)
		n += strings.Count(page, `<li id="hit-`)
		path = nextOf(page)
	}
	if n != 51 {
		t.Errorf("%d Mechas on all pages", n)
	}
}
