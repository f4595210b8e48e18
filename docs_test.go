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

// markdownFiles gives what people read: the front page, its neighbours, and the pages.
func markdownFiles(t *testing.T) []string {
	t.Helper()
	front, err := filepath.Glob("*.md")
	inside, err2 := filepath.Glob(pages + "*.md")
	if err != nil || err2 != nil || len(front) < 5 || len(inside) < 12 {
		t.Fatalf("%d files and %d pages: %v %v", len(front), len(inside), err, err2)
	}
	return slices.Concat(front, inside)
}

// outside gives a Markdown text without its fenced blocks.
func outside(text string) string {
	return regexp.MustCompile("(?ms)^```.*?^```$").ReplaceAllString(text, "")
}

// headingAnchors gives the anchors that a forge gives the headings of a file.
func headingAnchors(t *testing.T, file string) map[string]bool {
	all := map[string]bool{}
	for _, h := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(outside(read(t, file)), -1) {
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
// them. What a server shows is the business of http/docs.
func TestNoLinkBetweenFilesIsDead(t *testing.T) {
	links := 0
	for _, file := range markdownFiles(t) {
		for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(outside(read(t, file)), -1) {
			if strings.HasPrefix(m[1], "https://") {
				continue
			}
			links++
			to, anchor, _ := strings.Cut(m[1], "#")
			path := file
			if to != "" {
				path = filepath.Join(filepath.Dir(file), to)
			}
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s: the link %s leads to no file", file, m[1])
			} else if anchor != "" && !headingAnchors(t, path)[anchor] {
				t.Errorf("%s: the link %s leads to no section", file, m[1])
			}
			if strings.HasPrefix(file, pages) && strings.Contains(to, "/") {
				t.Errorf("%s: the link %s leads out of the pages, where a server has nothing", file, m[1])
			}
		}
	}
	if links < 60 {
		t.Errorf("only %d links were found", links)
	}
}

// The README is a front page: short, and leads to every page.
func TestREADMEIsAFrontPage(t *testing.T) {
	text := read(t, "README.md")
	if n := strings.Count(text, "\n"); n > 160 {
		t.Errorf("README.md has %d lines", n)
	}
	for _, p := range docs.Pages() {
		if row := "| [" + p.Name + "](" + pages + p.Name + ".md) | " + p.About + " |\n"; !strings.Contains(text, row) {
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

// SECURITY.md names the tests that check it; they exist.
func TestTheTestsOfSECURITYExist(t *testing.T) {
	sources := ""
	for _, pattern := range []string{"*/*_test.go", "*/*/*_test.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			sources += read(t, f)
		}
	}
	names := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(read(t, "SECURITY.md"), -1)
	for _, m := range names {
		if !strings.Contains(sources, "\nfunc "+m[1]+"(t *testing.T) {") {
			t.Errorf("SECURITY.md names %s, which does not exist", m[1])
		}
	}
	if len(names) < 30 {
		t.Errorf("only %d names were found", len(names))
	}
}

// commands gives the calls of relay in a file: in its code spans, and in the
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
				out, err := exec.Command(os.Args[0], append(args, "--help")...).Output()
				if err != nil {
					t.Errorf("%s: %q: there is no such command", file, line)
				}
				help[key] = string(out)
			}
			for _, f := range flag.FindAllStringSubmatch(line, -1) {
				if !strings.Contains(help[key], "--"+f[1]) {
					t.Errorf("%s: %q: there is no flag --%s", file, line, f[1])
				}
			}
		}
	}
	if len(help) < 25 {
		t.Errorf("only these commands were found: %v", slices.Sorted(maps.Keys(help)))
	}
}

// The sh blocks of these pages are pasted one after the other, beside a server
// in development. Other blocks start servers or want other machines.
func TestTheExamplesOfThePagesRun(t *testing.T) {
	need(t, "sh", "awk", "curl")
	asRelay(t)
	interpreter := regexp.MustCompile(`\b(python3|node)\b`)
	elsewhere := regexp.MustCompile(`relay serve|systemctl|example\.com|openssl`)
	for _, p := range docs.Pages() {
		if p.Name == "api" || p.Name == "a2a" {
			continue // TestTheExamplesOfTheAPIPageRun, TestTheExampleOfTheA2APage
		}
		var script string
		for _, b := range blocks(t, pages+p.Name+".md", "sh") {
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
			t.Setenv("RELAY_KEY", dev(t)["alice^demo"])
			t.Chdir(t.TempDir())
			run(t, "set -e\n"+script, "sh", "-s")
		})
	}
}

// The examples of the page "api" run as they stand, beside a server in development: those
// in the shell, where curl fails if the answer is a refusal, and those in Python.
func TestTheExamplesOfTheAPIPageRun(t *testing.T) {
	asRelay(t)
	t.Setenv("RELAY_KEY", dev(t)["alice^demo"])
	call := func(path, body string) (answer map[string]any) {
		out, err := exec.Command(os.Args[0], "curl", "POST", path, body, "-H", "Prefer: wait=1").Output()
		if err == nil {
			err = json.Unmarshal(out, &answer)
		}
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	sent := call("/api/v1/messages", `{"to":"alice^demo","payload":{}}`)
	given := fmt.Sprintf("id='%s'; conversation='%s'; search='%s'\n", sent["message_id"], sent["conversation_id"], call("/api/v1/search", `{"query":"bob"}`)["request_id"])
	const page = pages + "api.md"
	t.Run("sh", func(t *testing.T) {
		need(t, "sh", "curl", "openssl")
		all := blocks(t, page, "sh")
		out := run(t, "set -e\n"+given+"curl() { command curl --fail-with-body \"$@\"; }\n"+strings.Join(all, ""), "sh", "-s")
		if n := len(regexp.MustCompile(`"pending":[0-9]+,"oldest`).FindAllString(out, -1)); len(all) < 14 || n != 2 {
			t.Errorf("%d blocks, %d answers of the inbox: %s", len(all), n, out)
		}
	})
	t.Run("python", func(t *testing.T) {
		need(t, "python3")
		all := blocks(t, page, "python")
		script := regexp.MustCompile(`(?m)^call\(.*\)$`).ReplaceAllString(strings.Join(all, ""), "print($0)")
		out := run(t, given+script, "python3", "-")
		if n := strings.Count(out, "b'"); len(all) < 14 || n < 20 {
			t.Errorf("%d blocks, %d answers: %s", len(all), n, out)
		}
	})
}

// The example of the page "a2a" runs as it stands, at another port, and prints what the
// page shows, but for ids and times.
func TestTheExampleOfTheA2APage(t *testing.T) {
	need(t, "sh", "awk", "curl")
	asRelay(t)
	dev(t)
	const file = pages + "a2a.md"
	script := strings.ReplaceAll(strings.Join(blocks(t, file, "sh"), ""), "127.0.0.1:8090", scratch.Addr(t))
	example := blocks(t, file, "json")
	t.Chdir(t.TempDir())
	got := run(t, "set -e\n"+script, "sh", "-s")
	seen := map[string]string{}
	got = regexp.MustCompile(`(msg|conv)_[0-9a-z]{26}`).ReplaceAllStringFunc(got, func(id string) string {
		kind, _, _ := strings.Cut(id, "_")
		if seen[id] == "" {
			seen[kind] += "x"
			seen[id] = fmt.Sprintf("%s_%d", kind, len(seen[kind]))
		}
		return seen[id]
	})
	got = regexp.MustCompile(`20\d\d-[-\dT:.]+Z`).ReplaceAllLiteralString(got, "TIME")
	for _, shown := range example {
		before, rest, found := strings.Cut(got, shown)
		if !found {
			t.Fatalf("the page shows\n%s\nand this is printed:\n%s", shown, got)
		}
		got = before + rest
	}
}

// The first JSON of these sections of the protocol has the fields that the
// relay's own answer has.
func TestTheAnswersOfTheProtocolPageAreReal(t *testing.T) {
	printed := dev(t)
	call := func(key, method, path, body string, headers ...string) string {
		args := []string{"curl", method, path}
		if body != "" {
			args = append(args, body)
		}
		for _, h := range headers {
			args = append(args, "-H", h)
		}
		t.Setenv("RELAY_KEY", printed[key])
		out, _ := exec.Command(os.Args[0], args...).Output() // a refusal is an answer too
		return string(out)
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
		answers["### Search result"] = call(alice, "POST", "/api/v1/search", question, "Prefer: wait=1")
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

// fields gives the paths of the fields of a JSON text, as in results[].score.
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
