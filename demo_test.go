package main

import (
	"regexp"
	"strings"
	"testing"
)

// The demo prints what the README shows of it, in that order.
func TestREADMEDemo(t *testing.T) {
	changing := regexp.MustCompile(`msg_[0-9a-z]{26}`)
	shown := strings.TrimPrefix(block(t, "README.md", "text", "$ relay demo"), "$ relay demo\n")
	printed := runRelay(t, "demo")
	rest := changing.ReplaceAllString(printed, "•")
	for line := range strings.Lines(changing.ReplaceAllString(shown, "•")) {
		_, after, found := strings.Cut(rest, "\n"+line)
		if !found {
			t.Fatalf("relay demo does not print %q here:\n%s", line, printed)
		}
		rest = "\n" + after
	}
}
