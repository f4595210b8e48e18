package cmd_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"relay/db/scratch"
)

// A change of the source of one file, for a program that is built for a test.
type change struct{ file, from, to string }

// buildChanged builds the program from changed source, with further arguments of go build. go build
// keeps what it has made, as makeProgram's go run does.
func buildChanged(t *testing.T, changes []change, args ...string) string {
	t.Helper()
	dir := t.TempDir()
	program, overlay := filepath.Join(dir, programName), filepath.Join(dir, "overlay.json")
	replace := map[string]string{}
	for i, c := range changes {
		file, err := filepath.Abs(c.file)
		source, err2 := os.ReadFile(cmp.Or(replace[file], file))
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		if bytes.Count(source, []byte(c.from)) != 1 {
			t.Fatalf("%s has not once: %s", file, c.from)
		}
		other := filepath.Join(dir, fmt.Sprint(i, ".go"))
		if err := os.WriteFile(other, bytes.Replace(source, []byte(c.from), []byte(c.to), 1), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[file] = other
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err == nil {
		err = os.WriteFile(overlay, list, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", append(append([]string{"build", "-buildvcs=false", "-tags", testTags, "-overlay", overlay, "-o", program}, args...), "..")...)
	if scratch.Long(t) {
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
	}
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}
