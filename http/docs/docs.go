// Package docs is the documentation that the program carries. Each page is one
// Markdown file: a forge shows the file, a server serves it as HTML at /docs, and
// "relay docs NAME" prints it.
//
// The pages of the core are in this folder. A ring, a part of the program that can
// be taken off, keeps its pages in a folder of its own and registers them (Register).
// What other pages say of a ring stands between its marks, and goes with it (Present).
// So this package imports nothing of ours, and rings import it.
package docs

import (
	"embed"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// A Page is one page of the documentation.
type Page struct {
	Name  string // as in /docs/NAME and "relay docs NAME"
	Place int    // in the list of pages; the lowest comes first
	Part  string // the part of the documentation that it belongs to
	About string // one line for lists of pages
	Title string // its first heading
	Text  string // Markdown
}

// The parts of the documentation.
const (
	Writing  = "For programs that use a relay"
	Running  = "For people who run one"
	Changing = "For people who change it"
)

// A Ring is a part of the program that can be taken off.
type Ring struct {
	Name  string   // as in its marks
	Pages []Page   // without Title and Text
	Files embed.FS // NAME.md for each page, and pictures
}

// rings are the core, which has no name, and the rings that are there.
var rings = []Ring{{Files: files, Pages: []Page{
	{Name: "signing", Place: 10, Part: Writing, About: "the headers of a request, with a test vector and programs"},
	{Name: "api", Place: 20, Part: Writing, About: "every request as relay curl, curl and Python"},
	{Name: "sockets", Place: 30, Part: Writing, About: "live messages: connect, acknowledge, send, resume"},
	{Name: "search", Place: 40, Part: Writing, About: "profiles: how to be found, and how to find others"},
	{Name: "promises", Place: 50, Part: Writing, About: "what a 201 means, and what holds when something fails"},
	{Name: "errors", Place: 60, Part: Writing, About: "every error code, and what to do"},
	{Name: "protocol", Place: 70, Part: Writing, About: "the reference: every request, answer and rule"},
	{Name: "command-line", Place: 80, Part: Running, About: "all commands at a glance"},
	{Name: "keys", Place: 90, Part: Running, About: "create, list, rotate and revoke keys"},
	{Name: "deploying", Place: 100, Part: Running, About: "packages, systemd, containers, files, starting and stopping"},
	{Name: "watching", Place: 110, Part: Running, About: "health, metrics, alerts, the log, the audit log"},
	{Name: "tls", Place: 120, Part: Running, About: "HTTPS: a certificate, ACME, or a proxy"},
	{Name: "backups", Place: 130, Part: Running, About: "back up, check, restore, compact"},
	{Name: "retention", Place: 160, Part: Running, About: "how long messages are kept, and what is removed with them"},
	{Name: "settings", Place: 170, Part: Running, About: "every flag of relay serve"},
	{Name: "architecture", Place: 180, Part: Changing,
		About: "how the program is built, and how a message goes through it"},
}}}

//go:embed *.md
var files embed.FS

// Register adds a ring. The init function of its package calls it.
func Register(r Ring) { rings = append(rings, r) }

// Has reports whether a ring is there.
func Has(ring string) bool {
	return slices.ContainsFunc(rings, func(r Ring) bool { return r.Name == ring })
}

// The marks of a ring are comments: <!-- NAME --> at the end of a line is about that line,
// and on a line of its own about all up to <!-- /NAME -->. <!-- NAME: WORDS --> on a line of
// its own is about all lines of the text that begin with these words, as examples in blocks do.
var (
	markedBlock = regexp.MustCompile(`(?s)\n<!-- ([a-z0-9]+) -->(\n.*?)\n<!-- /[a-z0-9]+ -->`)
	markedWords = regexp.MustCompile(`(?m)^<!-- ([a-z0-9]+): (.+) -->\n`)
	markedLine  = regexp.MustCompile(`(?m)^(.*[^ \n]) *<!-- ([a-z0-9]+) -->\n`)
)

// Present returns a Markdown text without the marks of rings, and without what is
// marked as about a ring that is not there.
func Present(text string, has func(ring string) bool) string {
	for _, m := range markedWords.FindAllStringSubmatch(text, -1) {
		text = strings.Replace(text, m[0], "", 1)
		if !has(m[1]) {
			text = regexp.MustCompile(`(?m)^`+regexp.QuoteMeta(m[2])+`.*\n`).ReplaceAllString(text, "")
		}
	}
	text = markedBlock.ReplaceAllStringFunc(text, func(block string) string {
		if m := markedBlock.FindStringSubmatch(block); has(m[1]) {
			return m[2]
		}
		return ""
	})
	return markedLine.ReplaceAllStringFunc(text, func(line string) string {
		if m := markedLine.FindStringSubmatch(line); has(m[2]) {
			return m[1] + "\n"
		}
		return ""
	})
}

// pictures returns the pictures of the pages, by the names of their files.
func pictures() map[string][]byte {
	all := map[string][]byte{}
	for _, r := range rings {
		found, _ := r.Files.ReadDir(".") // it is embedded
		for _, f := range found {
			if strings.HasSuffix(f.Name(), ".png") {
				all[f.Name()], _ = r.Files.ReadFile(f.Name())
			}
		}
	}
	return all
}

var (
	// comment is one that has lines of its own, right below what it is about.
	comment = regexp.MustCompile(`(?s)\n[ \t]*<!--.*?-->`)
	// folder is the folder of a ring's page, in a link to it. A server has all pages in one place.
	folder = regexp.MustCompile(`\]\((?:\.\./|[\w-]+/)+([\w-]+\.md[#)])`)
)

// Pages returns all pages in the order of their list. Comments in the files are
// for the maintainers, and left out.
func Pages() []Page { return slices.Clone(pages()) }

var pages = sync.OnceValue(func() (pages []Page) {
	for _, r := range rings {
		for _, p := range r.Pages {
			text, err := r.Files.ReadFile(p.Name + ".md")
			if err != nil {
				panic(err) // a page of the list was not embedded; the tests read them all
			}
			p.Text = Present(strings.ReplaceAll(string(text), "\r\n", "\n"), Has)
			p.Text = folder.ReplaceAllString(comment.ReplaceAllLiteralString(p.Text, ""), "]($1")
			first, _, _ := strings.Cut(p.Text, "\n")
			p.Title = strings.TrimPrefix(first, "# ")
			pages = append(pages, p)
		}
	}
	slices.SortStableFunc(pages, func(a, b Page) int { return a.Place - b.Place })
	return pages
})

// A code is an error code, as the page "errors" explains it.
type code struct {
	Name    string
	Status  string
	Meaning string // Markdown
}

var codeSection = regexp.MustCompile(`(?m)^(?:## Status (\d+)|### (\w+)\n\n(.+))$`)

// codes returns the sections of the page "errors".
func codes(pages []Page) (all []code) {
	status := ""
	i := slices.IndexFunc(pages, func(p Page) bool { return p.Name == "errors" })
	for _, m := range codeSection.FindAllStringSubmatch(pages[i].Text, -1) {
		if m[1] != "" {
			status = m[1]
			continue
		}
		all = append(all, code{Name: m[2], Status: status, Meaning: m[3]})
	}
	return all
}
