package mcp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

const longestLine = 15 << 20 // bytes; the SDK takes 16 MiB

// lineReader passes on the lines that are messages of JSON-RPC 2.0, and answers every other line with
// an error whose id is null: the SDK would end the session, and the calls under way with it. One
// goroutine reads.
type lineReader struct {
	in   *bufio.Reader
	out  io.Writer
	rest []byte // of a line that is being passed on
}

func (r *lineReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		line, long, err := r.line()
		if err != nil && len(line) == 0 {
			return 0, err
		}
		if code, text := refusal(line, long); text != "" {
			if _, err := fmt.Fprintf(r.out, `{"jsonrpc":"2.0","id":null,"error":{"code":%d,"message":%q}}`+"\n",
				code, text); err != nil {
				return 0, err
			}
			continue
		}
		r.rest = append(bytes.TrimSpace(line), '\n')
		if len(r.rest) == 1 { // an empty line
			r.rest = nil
		}
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// line reads a line. Of one that is longer than longestLine it returns the beginning.
func (r *lineReader) line() (line []byte, long bool, err error) {
	for {
		part, err := r.in.ReadSlice('\n')
		if long = long || len(line)+len(part) > longestLine; !long {
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, long, err
		}
	}
}

// refusal says why a line is not a message, or returns "".
func refusal(line []byte, long bool) (code int64, text string) {
	line = bytes.TrimSpace(line)
	switch {
	case long:
		return jsonrpc.CodeInvalidRequest, fmt.Sprintf("the line is longer than %d bytes", longestLine)
	case len(line) == 0:
		return 0, ""
	case !json.Valid(line):
		return jsonrpc.CodeParseError, "the line is not valid JSON"
	case line[0] == '[':
		return jsonrpc.CodeInvalidRequest, "a batch of messages is not taken: send each separately"
	}
	if _, err := jsonrpc.DecodeMessage(line); err != nil {
		return jsonrpc.CodeInvalidRequest, "the line is not a message of JSON-RPC 2.0"
	}
	return 0, ""
}

// lockedWriter lets several goroutines write, each a whole line at once.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

func (l *lockedWriter) Close() error { return nil }
