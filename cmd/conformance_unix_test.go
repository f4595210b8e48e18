//go:build unix

package cmd_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// An interrupt ends the kit, its relay, and the program with its children.
func TestConformanceLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := exec.Command(binary, "conformance", "--only", "plain", "--role", "worker", "--", tool(t, "sh"), "-c", "echo $$ >'"+dir+"/pid'; sleep 1000; true")
	s := launch(t, c, []string{"TMPDIR=" + dir})
	eventually(t, patience, "the program runs", func() bool {
		text, err := os.ReadFile(filepath.Join(dir, "pid"))
		return err == nil && strings.HasSuffix(string(text), "\n")
	})
	if code := s.signal(os.Interrupt); code != 1 || !strings.Contains(s.stderr.String(), "interrupted; nothing is left behind") {
		t.Errorf("exit %d: %s", code, s.stderr)
	}
	text, err := os.ReadFile(filepath.Join(dir, "pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || syscall.Kill(pid, 0) == nil {
		t.Errorf("the program %d runs still: %v", pid, err)
	}
	wantFiles(t, dir, "pid")
}
