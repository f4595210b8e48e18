package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	nethttp "net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"relay/cmd/internal/display"
	"relay/cmd/internal/show"
	"relay/http/client"
)

const (
	maxReply = 1 << 20         // bytes that a command may print
	keptTail = 4 << 10         // bytes of what it writes to stderr
	pipeWait = 5 * time.Second // for a process that the command has left behind to close the output
)

// execute is the handler with --exec: it runs the command for a message and, with --reply, sends its output
// back. The error is a *failure, or one that ends the listener: then the message stays pending.
func (l *listener) execute(ctx context.Context, m *client.Message) error {
	out, err := l.command(ctx, m)
	if err == nil && l.f.reply && m.Type != l.f.replyType {
		err = l.answer(ctx, m, out)
	}
	var failed *failure
	switch {
	case errors.As(err, &failed) && l.ready(ctx) != nil: // which may be why the command failed
		return client.Abandon(errUnread)
	case err != nil && failed == nil:
		return client.Abandon(err)
	}
	return err
}

// failure is the reason why a command failed, which the sender of the message gets.
type failure struct{ detail string }

func (f *failure) Error() string { return f.detail }

// command runs the command to its end and returns its output if --reply is set. The error is a *failure if the
// command failed, and another one if it could not be started.
func (l *listener) command(ctx context.Context, m *client.Message) (out []byte, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := shell(ctx, l.f.exec)
	c.WaitDelay = pipeWait
	c.Env = append(os.Environ(), environment(m)...)
	c.Stdin = bytes.NewReader(m.Payload)
	last, printed := &tail{}, &head{}
	c.Stderr = io.MultiWriter(last, errorIgnorer{l.Stderr})
	c.Stdout = show.Under(l.Stdout)
	if l.f.reply {
		c.Stdout = printed
	}
	var late, killed atomic.Bool
	kill := c.Cancel
	c.Cancel = func() error { // only while the command runs; Wait may wait longer, for processes that it has left behind
		killed.Store(late.Load())
		return kill()
	}
	if err := c.Start(); err != nil {
		return nil, fmt.Errorf("cannot start the command: %w", err)
	}
	if l.f.timeout > 0 { // from here on: a busy machine may take long to start a process
		defer time.AfterFunc(l.f.timeout, func() { late.Store(true); cancel() }).Stop()
	}
	err = c.Wait()
	switch {
	case c.ProcessState != nil && c.ProcessState.Success(): // Wait also fails if a process is left behind
		if printed.more {
			return nil, &failure{fmt.Sprintf("the command printed more than %d bytes", maxReply)}
		}
		return printed.b.Bytes(), nil
	case killed.Load():
		return nil, &failure{fmt.Sprintf("killed after %v", l.f.timeout)}
	}
	detail := last.line()
	if detail == "" {
		detail = err.Error() // exit status 3, signal: killed
	}
	return nil, &failure{detail}
}

// answer sends the output of the command.
func (l *listener) answer(ctx context.Context, m *client.Message, out []byte) error {
	out = bytes.TrimSpace(out)
	if len(out) == 0 {
		return &failure{"the command printed no answer"}
	}
	if err := checkPayload(out); err != nil {
		return &failure{"the command must print one JSON object and nothing else: " + err.Error()}
	}
	err := m.Reply(ctx, out)
	var refused *client.Refusal
	switch {
	case err == nil:
		return nil
	case ctx.Err() == nil && errors.As(err, &refused) && refused.Status != nethttp.StatusUnauthorized:
		return &failure{"the answer was refused: " + err.Error()}
	}
	return fmt.Errorf("cannot send its answer: %w", err)
}

var errUnread = errors.New("nobody reads the output anymore")

// ready refuses further messages if nobody reads what commands print. Then every command
// that prints would fail, whatever its message is.
func (l *listener) ready(context.Context) error {
	if f, ok := show.Under(l.Stdout).(*os.File); ok && !l.f.reply && display.Unread(f) {
		return errUnread
	}
	return nil
}

// errorIgnorer is a writer that hides its errors: a command must not end because the log to which it writes is
// full.
type errorIgnorer struct{ w io.Writer }

func (c errorIgnorer) Write(p []byte) (int, error) {
	_, _ = c.w.Write(p)
	return len(p), nil
}

// tail is a writer that keeps the end of its input.
type tail struct{ b []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	if n := len(t.b) - keptTail; n > 0 {
		t.b = append(t.b[:0], t.b[n:]...)
	}
	return len(p), nil
}

// line returns the last line that is not empty.
func (t *tail) line() string {
	text := strings.TrimSpace(string(t.b))
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// head is a writer that keeps the beginning of its input and records whether there was more.
type head struct {
	b    bytes.Buffer
	more bool
}

func (h *head) Write(p []byte) (int, error) {
	room := maxReply - h.b.Len()
	h.more = h.more || len(p) > room
	h.b.Write(p[:min(len(p), room)])
	return len(p), nil
}
