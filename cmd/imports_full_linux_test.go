package cmd_test

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// If the disk is full, the import ends, and says so once, not for each line. Here it is the log that
// may not grow (ulimit -f).
func TestAnImportEndsAtAFullDisk(t *testing.T) {
	t.Parallel()
	db := tempDB(t)
	issue(t, db, "a^x")
	s := startProcess(t, db, "--min-free-disk", "0")
	limit := unix.Rlimit{Cur: uint64(sizeOf(t, db+"-wal")) + 100_000, Max: unix.RLIM_INFINITY}
	if err := unix.Prlimit(s.cmd.Process.Pid, unix.RLIMIT_FSIZE, &limit, nil); err != nil {
		t.Skip("the limits of another process cannot be set here: ", err)
	}
	var lines strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&lines, `{"mecha_id":"m%d^x","profile":{"display_name":"B"}}`+"\n", i)
	}
	r := run(t, []string{"mecha", "import", "-", "--db", db}, nil, lines.String())
	r.wantCode(t, 1, "stopped at line ", "the disk is full")
	if n := strings.Count(r.err, "\n"); n > 3 {
		t.Errorf("%d lines on stderr:\n%.2000s", n, r.err)
	}
}
