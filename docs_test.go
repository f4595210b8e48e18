package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"relay/db/scratch"
	"relay/http/docs"
)

// markdownFiles returns what people read: the front page and its neighbours, the pages, and
// what rings say of security.
func markdownFiles(t *testing.T) (files []string) {
	t.Helper()
	files, err := filepath.Glob("*.md")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	for _, dir := range []string{"cmd", "http"} {
		eachFile(t, dir, ".md", func(file string) { files = append(files, file) })
	}
	return files
}

// eachFile visits the files with an ending that are in a folder or below it, but for test data.
func eachFile(t *testing.T, dir, ending string, f func(file string)) {
	t.Helper()
	err := filepath.WalkDir(dir, func(file string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == "testdata" {
			return filepath.SkipDir
		}
		if err == nil && strings.HasSuffix(file, ending) {
			f(filepath.ToSlash(file))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// pageFiles returns the files of the pages, by the names of the pages.
func pageFiles(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, file := range markdownFiles(t) {
		if name := filepath.Base(file); file != name && name != "SECURITY.md" {
			all[strings.TrimSuffix(name, ".md")] = file
		}
	}
	return all
}

var fenced, heading = regexp.MustCompile("(?ms)^```.*?^```$"), regexp.MustCompile(`(?m)^#+ (.*)$`)

// outside returns a Markdown text without its fenced blocks.
func outside(text string) string { return fenced.ReplaceAllString(text, "") }

// headingAnchors returns the anchors that a forge gives the headings of a text, which is
// outside of fenced blocks.
func headingAnchors(text string) map[string]bool {
	all := map[string]bool{}
	for _, h := range heading.FindAllStringSubmatch(text, -1) {
		all[strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_':
				return unicode.ToLower(r)
			}
			return -1
		}, h[1])] = true
	}
	return all
}

// A link between files leads to a file, and to a section of it, as a forge shows
// them, even while a ring is taken off. TestNoLinkOfTheSiteIsDead checks the pages of a server.
func TestNoLinkBetweenFilesIsDead(t *testing.T) {
	known := map[string]linked{}
	for off := range ringFolders {
		checkLinks(t, known, off)
	}
	if links := checkLinks(t, known, ""); links < 60 {
		t.Errorf("only %d links were found", links)
	}
}

// linked is what a Markdown file links to, and the sections that it has.
type linked struct {
	links   [][]string
	anchors map[string]bool
}

// link finds the target of a link.
var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// without returns what a file has without a ring, which is known already if no mark of the file names
// the ring.
func without(t *testing.T, known map[string]linked, file, off string) linked {
	t.Helper()
	text, key := raw(t, file), file
	if strings.Contains(text, "<!-- "+off) {
		key += " " + off
	}
	if known[key].anchors == nil {
		text = outside(docs.Present(text, func(ring string) bool { return ring != off && docs.Has(ring) }))
		known[key] = linked{link.FindAllStringSubmatch(text, -1), headingAnchors(text)}
	}
	return known[key]
}

// checkLinks checks the links between the files that there are without a ring, and returns
// how many there are.
func checkLinks(t *testing.T, known map[string]linked, off string) (links int) {
	t.Helper()
	gone := func(file string) bool { return off != "" && within(file, ringFolders[off]) }
	isPage := map[string]bool{}
	for _, file := range pageFiles(t) {
		isPage[file] = true
	}
	for _, file := range slices.DeleteFunc(markdownFiles(t), gone) {
		for _, m := range without(t, known, file, off).links {
			if strings.HasPrefix(m[1], "https://") {
				continue
			}
			links++
			to, anchor, _ := strings.Cut(m[1], "#")
			path := file
			if to != "" {
				path = filepath.ToSlash(filepath.Join(filepath.Dir(file), to))
			}
			if _, err := os.Stat(path); err != nil || gone(path) {
				t.Errorf("%s: without ring %q the link %s leads to no file", file, off, m[1])
			} else if anchor != "" && !without(t, known, path, off).anchors[anchor] {
				t.Errorf("%s: without ring %q the link %s leads to no section", file, off, m[1])
			}
			if isPage[file] && to != "" && !isPage[path] && filepath.Ext(to) != ".png" {
				t.Errorf("%s: the link %s leads out of the pages, where a server has nothing", file, m[1])
			}
		}
	}
	return links
}

// The README is a front page: short, and leads to every page.
func TestREADMEIsAFrontPage(t *testing.T) {
	text := read(t, "README.md")
	if n := strings.Count(text, "\n"); n > 160 {
		t.Errorf("README.md has %d lines", n)
	}
	files := pageFiles(t)
	for _, p := range docs.Pages() {
		if row := "| [" + p.Name + "](" + files[p.Name] + ") | " + p.About + " |\n"; !strings.Contains(text, row) {
			t.Errorf("README.md has no row %s", row)
		}
	}
}

// Comments cite PROTOCOL §n, Name: the page has those sections.
func TestTheProtocolPageHasWhatCommentsCite(t *testing.T) {
	page, cited := read(t, pages+"protocol.md"), 0
	citation := regexp.MustCompile(`PROTOCOL §(\d+)(?:, ([A-Z]\w+(?: [A-Z]\w+)*))?`)
	err := filepath.WalkDir(".", func(path string, _ os.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" {
			return err
		}
		for _, m := range citation.FindAllStringSubmatch(read(t, path), -1) {
			cited++
			_, section, found := strings.Cut(page, "\n## "+m[1]+". ")
			section, _, _ = strings.Cut(section, "\n## ")
			if !found || m[2] != "" && !strings.Contains(section, "\n### "+m[2]) {
				t.Errorf("%s cites %q, which the page does not have", path, m[0])
			}
		}
		return nil
	})
	if err != nil || cited < 40 {
		t.Errorf("%d citations were found: %v", cited, err)
	}
}

// SECURITY.md names the tests that check it, and that of a ring does; they exist.
func TestTheTestsOfSECURITYExist(t *testing.T) {
	var sources strings.Builder
	eachFile(t, ".", "_test.go", func(file string) { sources.WriteString(read(t, file)) })
	found := 0
	eachFile(t, ".", "SECURITY.md", func(file string) {
		for _, m := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(read(t, file), -1) {
			if found++; !strings.Contains(sources.String(), "\nfunc "+m[1]+"(t *testing.T) {") {
				t.Errorf("%s names %s, which does not exist", file, m[1])
			}
		}
	})
	if found < 30 {
		t.Errorf("only %d names were found", found)
	}
}

// commands returns the calls of relay in a file: in its code spans, and in the
// lines of its blocks.
func commands(t *testing.T, file string) (all []string) {
	t.Helper()
	lines := regexp.MustCompile("`[^`\n]+`").FindAllString(outside(read(t, file)), -1)
	for _, b := range slices.Concat(blocks(t, file, "sh"), blocks(t, file, "ini")) {
		lines = append(lines, strings.Split(b, "\n")...)
	}
	call := regexp.MustCompile("(?:^|[`/( ])relay ([a-z][^|`)]*)")
	for _, line := range lines {
		for _, m := range call.FindAllStringSubmatch(line, -1) {
			all = append(all, m[1])
		}
	}
	return all
}

// Every command that the documentation names exists, with the flags shown.
func TestCommandsAndFlagsExist(t *testing.T) {
	words, flag := regexp.MustCompile(`^[a-z][a-z0-9]*(?: [a-z]+)*`), regexp.MustCompile(` --([a-z-]+)`)
	help := map[string]string{}
	for _, file := range markdownFiles(t) {
		if file == "CHANGELOG.md" || file == "BENCHMARKS.md" {
			continue // of what was, and of what was measured
		}
		for _, line := range commands(t, file) {
			args := strings.Fields(words.FindString(line))
			key := strings.Join(args, " ")
			if help[key] == "" {
				help[key] = runRelay(t, append(args, "--help")...)
				if !strings.Contains(help[key], "\n  relay "+args[0]) {
					t.Errorf("%s: %q: there is no such command", file, line)
				}
			}
			for _, f := range flag.FindAllStringSubmatch(line, -1) {
				if !strings.Contains(help[key], "--"+f[1]) {
					t.Errorf("%s: %q: there is no flag --%s", file, line, f[1])
				}
			}
		}
	}
	least := 25
	if len(rings(t)) == 0 { // whose commands are most of them
		least = 15
	}
	if len(help) < least {
		t.Errorf("only these commands were found: %v", slices.Sorted(maps.Keys(help)))
	}
}

// The sh blocks of these pages are pasted one after the other, next to a server.
// Other blocks start servers or want other machines.
func TestTheExamplesOfThePagesRun(t *testing.T) {
	need(t, "sh", "awk", "curl")
	asRelay(t)
	interpreter := regexp.MustCompile(`\b(python3|node)\b`)
	files := pageFiles(t)
	elsewhere := regexp.MustCompile(`relay serve|systemctl|example\.com|openssl`)
	for _, p := range docs.Pages() {
		if p.Name == "api" || p.Name == "a2a" {
			continue // TestTheExamplesOfTheAPIPageRun, TestTheExampleOfTheA2APage
		}
		var script string
		for _, b := range blocks(t, files[p.Name], "sh") {
			if _, err := exec.LookPath(interpreter.FindString(b)); err != nil && interpreter.MatchString(b) {
				t.Logf("%s: an example is not run: %v", p.Name, err)
			} else if !elsewhere.MatchString(b) {
				script += b
			}
		}
		if script == "" {
			continue
		}
		t.Run(p.Name, func(t *testing.T) {
			t.Setenv("RELAY_KEY", serve(t)["alice^demo"])
			t.Chdir(t.TempDir())
			run(t, "set -e\n"+script, "sh", "-s")
		})
	}
}

// The examples of the page "api" run as they stand, next to a server: those
// in the shell, where curl fails if the answer is a refusal, and those in Python.
func TestTheExamplesOfTheAPIPageRun(t *testing.T) {
	asRelay(t)
	t.Setenv("RELAY_KEY", serve(t)["alice^demo"])
	call := func(path, body string) (answer map[string]any) {
		out := call(t, os.Getenv("RELAY_KEY"), "POST", path, body, "Prefer", "wait=1")
		if err := json.Unmarshal([]byte(out), &answer); err != nil {
			t.Fatal(err)
		}
		return answer
	}
	sent := call("/api/v1/messages", `{"to":"alice^demo","payload":{}}`)
	given := fmt.Sprintf("id='%s'; conversation='%s'; search='%s'\n", sent["message_id"], sent["conversation_id"], call("/api/v1/search", `{"query":"bob"}`)["request_id"])
	const page = pages + "api.md"
	examples := func(t *testing.T, language string) (all []string) {
		for _, b := range blocks(t, page, language) {
			for ring, paths := range map[string]string{"metrics": "/metrics", "documents": `/(open|async)api\.json`} {
				if !docs.Has(ring) { // 404 then
					b = regexp.MustCompile(`(?m)^.*`+paths+`.*\n`).ReplaceAllString(b, "")
				}
			}
			all = append(all, b)
		}
		return all
	}
	t.Run("sh", func(t *testing.T) {
		need(t, "sh", "curl", "openssl")
		ways := 1 // by curl
		if docs.Has("agent") {
			ways++ // and by relay curl
		}
		all := examples(t, "sh")
		out := run(t, "set -e\n"+given+"curl() { command curl --fail-with-body \"$@\"; }\n"+strings.Join(all, ""), "sh", "-s")
		if n := len(regexp.MustCompile(`"pending":[0-9]+,"oldest`).FindAllString(out, -1)); len(all) < 14 || n != ways {
			t.Errorf("%d blocks, %d answers of the inbox: %s", len(all), n, out)
		}
	})
	t.Run("python", func(t *testing.T) {
		if need(t, "python3"); !scratch.Long(t) {
			t.Skip("one language does; -long runs both")
		}
		all := examples(t, "python")
		script := regexp.MustCompile(`(?m)^call\(.*\)$`).ReplaceAllString(strings.Join(all, ""), "print($0)")
		out := run(t, given+script, scratch.Python(t), "-")
		if n := strings.Count(out, "b'"); len(all) < 14 || n != len(all)-1 { // the first block is the function
			t.Errorf("%d blocks, %d answers: %s", len(all), n, out)
		}
	})
}

// The first JSON of these sections of the protocol has the fields that the
// relay's own answer has.
func TestTheAnswersOfTheProtocolPageAreReal(t *testing.T) {
	known := serve(t)
	call := func(key, method, path, body string, headers ...string) string {
		return call(t, known[key], method, path, body, headers...)
	}
	const alice, bob, profile = "alice^demo", "bob^demo", "/api/v1/mecha/bob^demo/profile"
	const question = `{"query":"book a flight","facets":["crew"],"highlight":true}`
	answers := map[string]string{
		"### whoami":   call(alice, "GET", "/api/v1/whoami", ""),
		"### Send":     call(alice, "POST", "/api/v1/messages", `{"to":"bob^demo","payload":{},"ttl_seconds":60}`),
		"### Profile":  call(bob, "PUT", profile, `{"display_name":"Bob","description":"books flights","tags":["a"],"skills":[{"id":"book","name":"Book","examples":["b"]}]}`),
		"### History":  call(bob, "GET", "/api/v1/mecha/bob^demo/messages?state=expired", ""),
		"### Search":   call(alice, "POST", "/api/v1/search", question),
		"## 6. Errors": call(alice, "POST", "/api/v1/messages", `{"to":"bbo^demo","payload":{}}`),
	}
	var sent struct {
		ID string `json:"message_id"`
	}
	if err := json.Unmarshal([]byte(answers["### Send"]), &sent); err != nil {
		t.Fatal(err)
	}
	message := "/api/v1/messages/" + sent.ID
	call(alice, "POST", "/api/v1/messages", `{"to":"bob^demo","payload":{},"priority":"high"}`)
	answers["### Inbox count"] = call(bob, "GET", "/api/v1/mecha/bob^demo/inbox", "")
	answers["### Mark Delivered"] = call(bob, "POST", message+"/deliver", "")
	answers["### Ack"] = call(bob, "POST", message+"/ack", `{"status":"completed","client_ts":"2026-11-22T08:00:00Z","detail":"d"}`)
	answers["### Get Message"] = call(bob, "GET", message, "")
	found := func() bool { // a profile is found within a second
		answers["### Search result"] = call(alice, "POST", "/api/v1/search", question, "Prefer", "wait=1")
		return strings.Contains(answers["### Search result"], `"mecha_id":"bob^demo"`)
	}
	for end := time.Now().Add(time.Minute); !found(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("bob is not found: %s", answers["### Search result"])
		}
	}
	page := read(t, pages+"protocol.md")
	for heading, answer := range answers {
		_, section, _ := strings.Cut(page, "\n"+heading+"\n")
		_, example, _ := strings.Cut(section, "\n```json\n")
		example, _, _ = strings.Cut(example, "\n```\n")
		if got, want := fields(t, heading, example), fields(t, heading, answer); !maps.Equal(got, want) {
			t.Errorf("%s: the page has the fields %v, the relay %v", heading, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
		}
	}
}

// fields returns the paths of the fields of a JSON text, as in results[].score.
func fields(t *testing.T, where, text string) map[string]bool {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%s: %v: %s", where, err, text)
	}
	all := map[string]bool{}
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for name, inner := range v {
				all[path+"."+name] = true
				walk(path+"."+name, inner)
			}
		case []any:
			for _, inner := range v {
				walk(path+"[]", inner)
			}
		}
	}
	walk("", v)
	return all
}
