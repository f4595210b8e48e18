//go:build cluster

package cmd_test

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A diskCall is a call that a traced process made, as far as it concerns files and sockets.
type diskCall struct {
	fileOp          // kind is set for writes and truncations of a file that is known, and for tellings
	name     string // of the call
	fd       int    // its first argument, if that is a descriptor
	of       *inode // what it writes or syncs
	path, to string // of a call that takes paths
	flags    string
	result   int
}

// A recordedStep is the beginning or the end of a call, of one of several machines.
type recordedStep struct {
	call    *diskCall
	ends    bool
	machine int
	at      int64 // microseconds
}

// nodeTraceOptions are traceOptions with the calls of a node, and the time of each beginning and
// end.
var nodeTraceOptions = []string{"-D", "-f", "--seccomp-bpf", "-y", "-qq", "-ttt", "-T", "-xx", "-s", "300000", "-e", "signal=none",
	"-e", "trace=?open,openat,?creat,pwrite64,?pwritev,?pwritev2,ftruncate,?truncate,?fallocate,?copy_file_range,?sendfile,fsync,fdatasync," +
		"?unlink,unlinkat,?rename,?renameat,renameat2,?mkdir,mkdirat,?rmdir,?link,linkat,write,writev"}

var (
	callEnds  = regexp.MustCompile(`\) += (-?\d+)`)
	callTook  = regexp.MustCompile(`<(\d+\.\d+)>$`)
	pathAt    = regexp.MustCompile(`(?:AT_FDCWD|\d+)<([^>]*)>, "([^"]*)"`)
	pathAlone = regexp.MustCompile(`^"([^"]*)"`)
	fdNumber  = regexp.MustCompile(`^\d+`)
	tracerPID = regexp.MustCompile(`(?m)^TracerPid:\t([1-9]\d*)$`)
)

// readNodeTrace reads the steps of one machine in their order, those of its folder and what it
// told clients.
func readNodeTrace(t *testing.T, name, root string, machine int) (steps []recordedStep) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	open := map[string]*diskCall{} // by thread: calls that have not returned
	var alone *recordedStep        // the end of the last call, which is in one line with its beginning
	lines := bufio.NewReaderSize(f, 1<<20)
	for {
		line, err := lines.ReadString('\n')
		if err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		thread, rest, _ := strings.Cut(line[:len(line)-1], " ")
		stamp, rest, _ := strings.Cut(strings.TrimLeft(rest, " "), " ")
		at, err := microseconds(stamp)
		if err != nil {
			t.Fatalf("%s: %v in %.200s", name, err, line)
		}
		if alone != nil { // it had returned before the next line
			alone.at = min(alone.at, at)
			steps, alone = append(steps, *alone), nil
		}
		if strings.HasPrefix(rest, "<... ") { // CALL resumed>
			c := open[thread]
			delete(open, thread)
			if c != nil && c.returned(rest) {
				steps = append(steps, recordedStep{c, true, machine, at})
			}
			continue
		}
		c, err := readDiskCall(rest, root)
		if err != nil {
			t.Fatalf("%s: %v in %.300s", name, err, line)
		}
		switch {
		case c == nil:
			delete(open, thread)
		case strings.HasSuffix(rest, "<unfinished ...>"):
			open[thread] = c
			steps = append(steps, recordedStep{c, false, machine, at})
		case c.returned(rest):
			steps = append(steps, recordedStep{c, false, machine, at})
			took, _ := microseconds(callTook.FindStringSubmatch(rest)[1])
			alone = &recordedStep{c, true, machine, at + took}
		}
	}
	if alone != nil {
		steps = append(steps, *alone)
	}
	return steps
}

// microseconds reads seconds with six digits of a fraction.
func microseconds(s string) (int64, error) {
	return strconv.ParseInt(strings.Replace(s, ".", "", 1), 10, 64)
}

// returned reads the result behind the last string, which is long. It reports whether the call
// succeeded.
func (c *diskCall) returned(line string) bool {
	m := callEnds.FindStringSubmatch(line[strings.LastIndexByte(line, '"')+1:])
	if m == nil {
		return false
	}
	c.result, _ = strconv.Atoi(m[1])
	return c.result >= 0
}

// readDiskCall reads a call and its arguments; nil if it does not concern us.
func readDiskCall(line, root string) (*diskCall, error) {
	name, args, isCall := strings.Cut(line, "(")
	if !isCall {
		return nil, nil // not a call
	}
	c := &diskCall{name: name, fd: -1}
	if fd := firstFD.FindStringSubmatch(args); fd != nil {
		c.file = unhex(fd[1])
		c.fd, _ = strconv.Atoi(fdNumber.FindString(args))
	}
	ours := isIn(c.file, root)
	switch name {
	case "fsync", "fdatasync":
		return c, nil
	case "write", "writev":
		switch {
		case ours && name == "write":
			c.data = []byte(textOf(args))
			return c, nil
		case ours:
			return nil, errors.New("a call that this recorder does not know")
		case !strings.HasPrefix(c.file, "socket:") && !strings.HasPrefix(c.file, "TCP"):
			return nil, nil
		}
		c.kind = tells
		if c.told, c.finished = toldBy(textOf(args)); len(c.told) == 0 {
			return nil, nil
		}
		return c, nil
	case "pwrite64", "ftruncate":
		if !ours {
			return nil, nil
		}
		head, _, _ := strings.Cut(args[strings.LastIndexByte(args, '"')+1:], ")")
		head = strings.TrimSuffix(strings.TrimSpace(head), " <unfinished ...>")
		var err error
		c.offset, err = strconv.ParseInt(head[strings.LastIndexByte(head, ' ')+1:], 10, 64)
		c.data = []byte(textOf(args))
		return c, err
	}
	c.readPaths(args)
	switch name {
	case "open", "openat", "creat":
		_, c.flags, _ = strings.Cut(args[strings.LastIndexByte(args, '"')+1:], " ")
	case "mkdir", "mkdirat", "rmdir", "unlink", "unlinkat", "rename", "renameat", "renameat2":
	default:
		if ours || isIn(c.path, root) || strings.Contains(args, root) {
			return nil, errors.New("a call that this recorder does not know")
		}
		return nil, nil
	}
	return c, nil
}

// readPaths reads one path or two, and what they are relative to.
func (c *diskCall) readPaths(args string) {
	var paths []string
	for _, m := range pathAt.FindAllStringSubmatch(args, -1) {
		path := unhex(m[2])
		if !filepath.IsAbs(path) {
			path = filepath.Join(unhex(m[1]), path)
		}
		paths = append(paths, path)
	}
	if m := pathAlone.FindStringSubmatch(args); m != nil {
		paths = append(paths, unhex(m[1]))
	}
	if len(paths) > 0 {
		c.path = filepath.Clean(paths[0])
	}
	if len(paths) > 1 {
		c.to = filepath.Clean(paths[1])
	}
	if c.name == "rename" { // two paths that are not relative to descriptors
		all := strings.Split(args, `"`)
		c.to = filepath.Clean(unhex(all[3]))
	}
}

// inOneOrder puts the steps of several machines in one order, by the clock that they share here.
// What follows from a step of another machine comes after it: strace stops the process while it
// notes the time.
func inOneOrder(machines ...[]recordedStep) []recordedStep {
	all := slices.Concat(machines...)
	slices.SortStableFunc(all, func(a, b recordedStep) int { return cmp.Compare(a.at, b.at) })
	return all
}

// traced has the node run under strace from its next start on, and gives the trace.
func (n *clusterNode) traced() (trace string) {
	n.trio.t.Helper()
	trace = filepath.Join(n.trio.t.TempDir(), "trace")
	n.wrap = append(append([]string{"strace"}, nodeTraceOptions...), "-o", trace)
	return trace
}

// cutPower kills the node, and waits until strace has written all that it saw.
func (n *clusterNode) cutPower() {
	t := n.trio.t
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.server.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	tracer := tracerPID.FindStringSubmatch(string(status))
	if tracer == nil {
		t.Fatalf("nobody traces %s:\n%s", n.name, status)
	}
	n.kill()
	eventually(t, patience, "strace has ended", func() bool {
		command, err := os.ReadFile("/proc/" + tracer[1] + "/cmdline")
		return err != nil || len(command) == 0 // of a process that nobody has waited for
	})
}
