package main

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"relay/http/docs"
)

// The worker of one block answers the question of the other.
func TestREADMEWorker(t *testing.T) {
	need(t, "sh", "awk", "date")
	asRelay(t)
	serve(t)
	worker := block(t, "README.md", "sh", "relay listen --reply")
	start(t, "sh", "-c", strings.Replace(worker, "\nrelay ", "\nexec relay ", 1)) // one process, to be ended
	for end := time.Now().Add(time.Minute); exec.Command(os.Args[0], "mecha", "show", "clock^demo").Run() != nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the worker registers nobody")
		}
	}
	got := run(t, block(t, "README.md", "sh", "relay ask"), "sh", "-s")
	want := `(?s)^\{"time":"\d\d:\d\d"\}\n`
	if docs.Has("inspect") {
		want += ".*acknowledged completed"
	}
	if !regexp.MustCompile(want).MatchString(got) {
		t.Errorf("the question gets no answer:\n%s", got)
	}
}
