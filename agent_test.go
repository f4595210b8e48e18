package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"time"

	"relay/cmd"
	"relay/http/docs"
)

// The worker of one block answers the question of the other.
func TestREADMEWorker(t *testing.T) {
	need(t, "sh", "awk", "date")
	asRelay(t)
	serve(t)
	worker := block(t, "README.md", "sh", "relay listen --reply")
	start(t, "sh", "-c", strings.Replace(worker, "\nrelay ", "\nexec relay ", 1)) // one process, to be ended
	var out, stderr bytes.Buffer
	for end := time.Now().Add(time.Minute); cmd.Run(t.Context(), schema, []string{"mecha", "show", "clock^demo"}, nil, &out, &stderr) != 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the worker registers nobody: %s", &stderr)
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
