package cmd_test

import (
	"bufio"
	"database/sql"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"modernc.org/sqlite"
)

// neighbourEnv is the environment variable that makes this test binary a neighbour. Its
// value is the database.
const neighbourEnv = "NEIGHBOUR_OF"

// beNeighbour runs each line of stdin as SQL on one connection to the file, and answers
// each with a line.
func beNeighbour(path string) int {
	_, _ = sqlite.OFDLocking(true) // as the relay's own commands have it
	u := url.URL{Scheme: "file", Path: filepath.ToSlash(path), RawQuery: "_busy_timeout=60000"}
	d, err := sql.Open("sqlite", u.String())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer d.Close()
	d.SetMaxOpenConns(1)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if _, err := d.Exec(lines.Text()); err != nil {
			fmt.Println("error:", err)
			return 1
		}
		fmt.Println("done")
	}
	return 0
}

// neighbour is another process that has the database open. It keeps its locks and its
// snapshots until it is told otherwise.
type neighbour struct {
	*server
	in      io.WriteCloser
	answers *bufio.Reader
}

func startNeighbour(t *testing.T, db string) *neighbour {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(exe)
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { out.Close() })
	c.Stdout = w
	n := &neighbour{launch(t, c, []string{neighbourEnv + "=" + db}), in, bufio.NewReader(out)}
	w.Close()
	return n
}

// does runs a statement to its end.
func (n *neighbour) does(statement string) {
	n.t.Helper()
	if _, err := fmt.Fprintln(n.in, statement); err != nil {
		n.t.Fatal(err)
	}
	if line, err := n.answers.ReadString('\n'); line != "done\n" {
		n.t.Fatalf("%s: %q %v\n%s", statement, line, err, n.stderr)
	}
}
