package scratch

import (
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// Python returns the interpreter that python3 starts, and skips the test if there is none. python3 may be a script
// that looks for the interpreter, as pyenv's is, and takes more of the processor than the interpreter's own start.
func Python(t testing.TB) string {
	t.Helper()
	path := python()
	if path == "" {
		t.Skip("python3 is not installed")
	}
	return path
}

var python = sync.OnceValue(func() string {
	path, err := exec.Command("python3", "-c", "import sys; print(sys.executable or 'python3')").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(path))
})
