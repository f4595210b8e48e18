// Package docs is the documentation that the program carries. Each page is one
// Markdown file in this folder: a forge shows the file, a server serves it as
// HTML at /docs, and "relay docs NAME" prints it.
package docs

import (
	"embed"
	"regexp"
	"slices"
	"strings"
)

// A Page is one page of the documentation.
type Page struct {
	Name  string // as in /docs/NAME and "relay docs NAME"
	Title string // its first heading
	About string // one line for lists of pages
	Part  string // the part of the documentation that it belongs to
	Text  string // Markdown
}

// The parts of the documentation.
const (
	writing = "For programs that use a relay"
	running = "For people who run one"
)

// contents is the order in which the pages are listed.
var contents = []Page{
	{Name: "signing", Part: writing, About: "the headers of a request, with a test vector and programs"},
	{Name: "api", Part: writing, About: "every request as relay curl, curl and Python"},
	{Name: "clients", Part: writing, About: "clients for Python, JavaScript and Go: one API, a first answered question in each"},
	{Name: "sockets", Part: writing, About: "live messages: connect, acknowledge, send, resume"},
	{Name: "mcp", Part: writing, About: "tools for models: a mailbox for Claude Code, Codex and others"},
	{Name: "a2a", Part: writing, About: "a door for A2A clients, also to Mechas that are away"},
	{Name: "waking", Part: writing, About: "wake Claude Code and others by a bell; setup and doctor"},
	{Name: "search", Part: writing, About: "profiles: how to be found, and how to find others"},
	{Name: "conformance", Part: writing, About: "judge your own client, in any language, or your own server"},
	{Name: "promises", Part: writing, About: "what a 201 means, and what holds when something fails"},
	{Name: "errors", Part: writing, About: "every error code, and what to do"},
	{Name: "protocol", Part: writing, About: "the reference: every request, answer and rule"},
	{Name: "command-line", Part: running, About: "all commands at a glance"},
	{Name: "keys", Part: running, About: "create, list, rotate and revoke keys"},
	{Name: "deploying", Part: running, About: "packages, systemd, containers, files, starting and stopping"},
	{Name: "watching", Part: running, About: "health, metrics, alerts, the log, the audit log"},
	{Name: "console", Part: running, About: "look at a relay in a browser: what waits and why"},
	{Name: "tls", Part: running, About: "HTTPS: a certificate, ACME, or a proxy"},
	{Name: "backups", Part: running, About: "back up, check, restore, compact"},
	{Name: "cluster", Part: running, About: "three machines, of which one may be lost (preview)"},
	{Name: "privacy", Part: running, About: "what searches keep and learn, for how long, how to forget"},
	{Name: "retention", Part: running, About: "how long messages are kept, and what is removed with them"},
	{Name: "settings", Part: running, About: "every flag of relay serve"},
}

//go:embed *.md *.png
var files embed.FS

// pictures gives the pictures of the pages, by the names of their files.
func pictures() map[string][]byte {
	all := map[string][]byte{}
	found, _ := files.ReadDir(".") // it is embedded
	for _, f := range found {
		if strings.HasSuffix(f.Name(), ".png") {
			all[f.Name()], _ = files.ReadFile(f.Name())
		}
	}
	return all
}

// comment is one that stands on lines of its own, right below what it is about.
var comment = regexp.MustCompile(`(?s)\n[ \t]*<!--.*?-->`)

// Pages gives all pages in the order of their list. Comments in the files are
// for the maintainers, and left out.
func Pages() []Page {
	pages := slices.Clone(contents)
	for i := range pages {
		p := &pages[i]
		text, err := files.ReadFile(p.Name + ".md")
		if err != nil {
			panic(err) // a page of the list was not embedded; the tests read them all
		}
		p.Text = comment.ReplaceAllLiteralString(strings.ReplaceAll(string(text), "\r\n", "\n"), "")
		first, _, _ := strings.Cut(p.Text, "\n")
		p.Title = strings.TrimPrefix(first, "# ")
	}
	return pages
}

// A code is an error code, as the page "errors" explains it.
type code struct {
	Name    string
	Status  string
	Meaning string // Markdown
}

var codeSection = regexp.MustCompile(`(?m)^(?:## Status (\d+)|### (\w+)\n\n(.+))$`)

// codes reads the sections of the page "errors".
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
