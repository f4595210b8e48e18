package cmd_test

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// A fileOp is something that a process did to a file, or told somebody, in the
// one order in which the tracer saw it.
type fileOp struct {
	kind       opKind
	file       string // its path
	offset     int64  // of a write; the new size of a truncation
	data       []byte
	begin, end int      // line numbers: a call takes its time, and others come in between
	told       []string // ids of messages that a client was told of
	finished   []string // ids of messages that a client was told are acknowledged
}

type opKind int

const (
	writes opKind = iota
	truncates
	syncs
	creates
	removes
	tells
	fails
)

// traceOptions make strace print what readTrace reads: whole buffers, in hex. With
// -D the traced program is our child, not strace.
var traceOptions = []string{"-D", "-f", "-y", "-qq", "-xx", "-s", "300000", "-e", "signal=none",
	"-e", "trace=?open,openat,pwrite64,ftruncate,fsync,fdatasync,?unlink,unlinkat,write,writev"}

var (
	firstFD    = regexp.MustCompile(`^\d+<([^>]*)>`)
	returned   = regexp.MustCompile(`\) += \d+`)
	aMessageID = regexp.MustCompile(`msg_[0-9a-z]{26}`)
	anAck      = regexp.MustCompile(`"message_id":"(msg_[0-9a-z]{26})","state":"acknowledged"`)
)

// readTrace reads what was done to the database and its log, and what was
// written to sockets. Calls that failed are left out. Lines are counted from first.
func readTrace(t *testing.T, name, db string, first int) (ops []*fileOp) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	open := map[string]*fileOp{} // by thread: calls that have not returned
	lines := bufio.NewReaderSize(f, 1<<20)
	for n := first; ; n++ {
		line, err := lines.ReadString('\n')
		if err == io.EOF {
			return ops
		} else if err != nil {
			t.Fatal(err)
		}
		line = line[:len(line)-1]
		thread, rest, _ := strings.Cut(line, " ")
		rest = strings.TrimLeft(rest, " ")
		if strings.HasPrefix(rest, "<... ") { // CALL resumed>
			if op := open[thread]; op != nil && succeeded(rest) {
				op.end = n
			} else if op != nil {
				op.kind = fails
			}
			delete(open, thread)
			continue
		}
		call, args, isCall := strings.Cut(rest, "(")
		if !isCall {
			continue
		}
		op, err := readCall(call, args, db)
		if err != nil {
			t.Fatalf("%s:%d: %v in %.200s", name, n, err, line)
		}
		if op == nil {
			continue
		}
		op.begin = n
		if strings.HasSuffix(line, "<unfinished ...>") {
			op.end = 1 << 60 // until it is known
			open[thread] = op
		} else if op.end = n; !succeeded(line) {
			continue
		}
		ops = append(ops, op)
	}
}

// readCall reads one call and its arguments; nil if it does not concern us.
func readCall(call, args, db string) (*fileOp, error) {
	op := &fileOp{}
	if fd := firstFD.FindStringSubmatch(args); fd != nil {
		op.file = unhex(fd[1])
	}
	ours := op.file == db || op.file == db+"-wal"
	switch call {
	case "fsync", "fdatasync":
		op.kind = syncs
		return op, nil
	case "pwrite64", "ftruncate":
		if !ours {
			return nil, nil
		}
		// …, count, offset) = n; or …, size) = 0
		head, _, _ := strings.Cut(args[strings.LastIndexByte(args, '"')+1:], ")")
		head = strings.TrimSuffix(strings.TrimSpace(head), " <unfinished ...>")
		number := head[strings.LastIndexByte(head, ' ')+1:]
		var err error
		if op.offset, err = strconv.ParseInt(number, 10, 64); err != nil {
			return nil, err
		}
		if op.kind = truncates; call == "pwrite64" {
			op.kind, op.data = writes, []byte(textOf(args))
		}
		return op, nil
	case "open", "openat", "unlink", "unlinkat":
		if op.file = textOf(args); op.file != db+"-wal" || strings.HasPrefix(call, "open") && !strings.Contains(args, "O_CREAT") {
			return nil, nil
		}
		if op.kind = creates; strings.HasPrefix(call, "unlink") {
			op.kind = removes
		}
		return op, nil
	default:
		if !strings.HasPrefix(op.file, "socket:") && !strings.HasPrefix(op.file, "TCP") {
			return nil, nil
		}
		op.kind = tells
		if op.told, op.finished = toldBy(textOf(args)); len(op.told) == 0 {
			return nil, nil
		}
		return op, nil
	}
}

// toldBy returns the messages that an answer names, and those of them that are acknowledged.
func toldBy(answer string) (told, finished []string) {
	for _, m := range anAck.FindAllStringSubmatch(answer, -1) {
		finished = append(finished, m[1])
	}
	return aMessageID.FindAllString(answer, -1), finished
}

// succeeded looks behind the last string of a line, which is long.
func succeeded(line string) bool {
	return returned.MatchString(line[strings.LastIndexByte(line, '"')+1:])
}

// textOf joins all strings among the arguments. In hex, none of them has a quotation mark.
func textOf(args string) string {
	var all strings.Builder
	for i, part := range strings.Split(args, `"`) {
		if i%2 == 1 {
			all.WriteString(unhex(part))
		}
	}
	return all.String()
}

// unhex reads \x2f\x74…
func unhex(s string) string {
	b, err := hex.DecodeString(strings.ReplaceAll(s, `\x`, ""))
	if err != nil {
		return fmt.Sprintf("not hex: %.20s", s)
	}
	return string(b)
}
