package cmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	maxReply  = 1 << 20         // bytes that a command may print
	maxDetail = 1 << 10         // bytes, by PROTOCOL §3
	pipeWait  = 5 * time.Second // for what a command left behind to close its output
)

// execute runs the command for a message, and gives what to ack. An error is
// a fault of the listener's, after which it must not go on: the message stays
// as it is.
func (l *listener) execute(ctx context.Context, e *envelope) (status, detail string, err error) {
	out, err := l.command(e)
	var failed *failure
	if errors.As(err, &failed) && l.unread() { // it may have failed for that alone
		return "", "", errUnread
	}
	if err == nil && l.o.reply && e.MessageType != l.o.replyType {
		err = l.answer(ctx, e, out)
	}
	switch {
	case l.alive.Err() != nil:
		return "", "", context.Cause(l.alive)
	case errors.As(err, &failed):
		fmt.Fprintf(l.stderr, "relay: %s failed: %s\n", e.MessageID, failed.detail)
		return "failed", failed.detail, nil
	}
	return "completed", "", err
}

// failure is what the sender of a message is told.
type failure struct{ detail string }

func (f *failure) Error() string { return f.detail }

// command runs it to its end. A *failure says that it failed; another error,
// that it could not be started.
func (l *listener) command(e *envelope) (out []byte, err error) {
	ctx, cancel := context.WithCancel(l.alive)
	defer cancel()
	if l.o.timeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, l.o.timeout)
		defer cancel()
	}
	c := shell(ctx, l.o.exec)
	c.WaitDelay = pipeWait
	c.Env = append(os.Environ(), e.environment()...)
	c.Stdin = bytes.NewReader(e.payload())
	last, printed := &tail{}, &head{}
	c.Stderr = io.MultiWriter(last, heedless{l.stderr})
	c.Stdout = l.stdout
	if l.o.reply {
		c.Stdout = printed
	}
	if err := c.Start(); err != nil {
		return nil, fmt.Errorf("the command cannot be started: %w", err)
	}
	err = c.Wait()
	switch {
	case c.ProcessState != nil && c.ProcessState.Success(): // whatever it left running
		if printed.more {
			return nil, &failure{fmt.Sprintf("the command printed more than %d bytes", maxReply)}
		}
		return printed.b.Bytes(), nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, &failure{fmt.Sprintf("killed after %v", l.o.timeout)}
	}
	detail := last.line()
	if detail == "" {
		detail = err.Error() // exit status 3, signal: killed
	}
	return nil, &failure{detail}
}

// answer sends what the command printed. The key of the reply is the message's
// id: if this is done again, after a crash, there is still one reply.
func (l *listener) answer(ctx context.Context, e *envelope, out []byte) error {
	reply := &outgoing{To: e.From, Type: l.o.replyType, ConversationID: e.ConversationID, CorrelationID: e.CorrelationID,
		payload: bytes.TrimSpace(out), idempotency: "reply-" + e.MessageID}
	if len(reply.payload) == 0 {
		return &failure{"the command printed no answer"}
	}
	if err := checkPayload(reply.payload); err != nil {
		return &failure{"the command must print one JSON object and nothing else: " + err.Error()}
	}
	err := l.persist(ctx, "the answer to "+e.MessageID+" is not sent yet", func(ctx context.Context) error {
		_, err := l.c.sendOnce(ctx, reply)
		return err
	})
	var r *refusal
	switch {
	case err == nil:
		return nil
	case l.alive.Err() == nil && errors.As(err, &r) && !unauthorised(r):
		if r.status == 422 { // another answer has been sent, before a crash
			return nil
		}
		return &failure{clip("the answer was refused: " + err.Error())}
	}
	return fmt.Errorf("its answer is not sent: %w", err)
}

var errUnread = errors.New("nobody reads the output any more")

// unread tells whether what commands print can reach nobody: every one that
// prints would fail, for a reason that is not its message's.
func (l *listener) unread() bool {
	f, ok := l.stdout.(*os.File)
	return ok && !l.o.reply && unread(f)
}

// heedless is a writer whose faults are nobody's: a log that is full must not
// end the command that writes to it.
type heedless struct{ w io.Writer }

func (h heedless) Write(p []byte) (int, error) {
	_, _ = h.w.Write(p)
	return len(p), nil
}

// tail keeps the end of what is written to it.
type tail struct{ b []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	if n := len(t.b) - 4*maxDetail; n > 0 {
		t.b = append(t.b[:0], t.b[n:]...)
	}
	return len(p), nil
}

// line is the last line that is not empty.
func (t *tail) line() string {
	text := strings.TrimSpace(strings.ToValidUTF8(string(t.b), "\uFFFD"))
	return clip(harmless(strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])))
}

// clip cuts a text to what a detail may have.
func clip(s string) string {
	if len(s) <= maxDetail {
		return s
	}
	n := maxDetail - len("…")
	for !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

// head keeps the beginning of what is written to it, and notes if there was more.
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
