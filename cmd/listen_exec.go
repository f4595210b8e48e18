package cmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	nethttp "net/http"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"relay/db/relay"
	"relay/http/client"
)

const (
	maxReply  = 1 << 20         // bytes that a command may print
	maxDetail = 1 << 10         // bytes (PROTOCOL §3)
	pipeWait  = 5 * time.Second // for a process that the command has left behind to close the output
)

// execute runs the command for a message, and returns the status and detail to
// acknowledge with. An error is a fault of the listener, which must end; the
// message stays pending.
func (l *listener) execute(ctx context.Context, e *envelope) (status, detail string, err error) {
	err = l.work(ctx, e)
	var failed *failure
	if errors.As(err, &failed) && l.unread() { // which may be why the command failed
		return "", "", errUnread
	}
	switch {
	case l.alive.Err() != nil:
		return "", "", context.Cause(l.alive)
	case l.lost(e) != nil: // so the command was killed
		return "", "", l.lost(e)
	case errors.As(err, &failed):
		fmt.Fprintf(l.stderr, "relay: %s failed: %s\n", e.MessageID, failed.detail)
		return "failed", failed.detail, nil
	}
	return "completed", "", err
}

// work runs the command for a message, and sends back what it printed if that is asked for.
func (l *listener) work(ctx context.Context, e *envelope) error {
	if !l.f.reply || e.MessageType == l.f.replyType {
		_, err := l.command(e)
		return err
	}
	if !l.breaker.begin(e.ConversationID, time.Now()) {
		return &failure{fmt.Sprintf("not answered: this conversation has had %d answers in %v (relay listen --max-replies)", l.f.maxReplies, breakerWindow)}
	}
	out, err := l.command(e)
	if err == nil {
		err = l.answer(ctx, e, out)
	}
	l.breaker.end(e.ConversationID, time.Now(), err == nil)
	return err
}

// failure is why a command failed. The sender of the message is told.
type failure struct{ detail string }

func (f *failure) Error() string { return f.detail }

// command runs the command to its end, and returns what it printed, with --reply.
// The error is a *failure if the command failed, and another one if it could not
// be started.
func (l *listener) command(e *envelope) (out []byte, err error) {
	ctx, cancel := context.WithCancel(l.working(e))
	defer cancel()
	if l.f.timeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, l.f.timeout)
		defer cancel()
	}
	c := shell(ctx, l.f.exec)
	c.WaitDelay = pipeWait
	c.Env = append(os.Environ(), e.environment()...)
	c.Stdin = bytes.NewReader(e.payload())
	last, printed := &tail{}, &head{}
	c.Stderr = io.MultiWriter(last, careless{l.stderr})
	c.Stdout = under(l.stdout)
	if l.f.reply {
		c.Stdout = printed
	}
	if err := c.Start(); err != nil {
		return nil, fmt.Errorf("the command cannot be started: %w", err)
	}
	err = c.Wait()
	switch {
	case c.ProcessState != nil && c.ProcessState.Success(): // Wait also fails if a process is left behind
		if printed.more {
			return nil, &failure{fmt.Sprintf("the command printed more than %d bytes", maxReply)}
		}
		return printed.b.Bytes(), nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, &failure{fmt.Sprintf("killed after %v", l.f.timeout)}
	}
	detail := last.line()
	if detail == "" {
		detail = err.Error() // exit status 3, signal: killed
	}
	return nil, &failure{detail}
}

// answer sends what the command printed. The Idempotency-Key is made of the
// message's id: if the command runs again after a crash, there is still one
// reply.
func (l *listener) answer(ctx context.Context, e *envelope, out []byte) error {
	reply := &outgoing{To: e.From, Type: l.f.replyType, ConversationID: e.ConversationID, CorrelationID: e.CorrelationID, InReplyTo: e.MessageID,
		payload: bytes.TrimSpace(out), idempotency: "reply-" + e.MessageID}
	if len(reply.payload) == 0 {
		return &failure{"the command printed no answer"}
	}
	if err := checkPayload(reply.payload); err != nil {
		return &failure{"the command must print one JSON object and nothing else: " + err.Error()}
	}
	err := l.persist(ctx, e, "the answer to "+e.MessageID+" is not sent yet", func(ctx context.Context) error {
		_, err := sendOnce(ctx, l.c, reply)
		return err
	})
	var refused *client.Refusal
	switch {
	case err == nil:
		return nil
	case l.working(e).Err() == nil && errors.As(err, &refused) && refused.Status != nethttp.StatusUnauthorized:
		if refused.Code == relay.IdempotencyKeyReused { // before a crash, another answer was sent
			return nil
		}
		return &failure{clip("the answer was refused: " + err.Error())}
	}
	return fmt.Errorf("its answer is not sent: %w", err)
}

var errUnread = errors.New("nobody reads the output any more")

// unread tells whether nobody reads what commands print. Then every command that
// prints would fail, whatever its message is.
func (l *listener) unread() bool {
	f, ok := under(l.stdout).(*os.File)
	return ok && !l.f.reply && unread(f)
}

// careless is a writer that hides its errors: a command must not end because
// the log to which it writes is full.
type careless struct{ w io.Writer }

func (c careless) Write(p []byte) (int, error) {
	_, _ = c.w.Write(p)
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

// line returns the last line that is not empty, fit for a detail.
func (t *tail) line() string {
	text := strings.TrimSpace(strings.ToValidUTF8(string(t.b), "\uFFFD"))
	return clip(relay.Visible(strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])))
}

// clip cuts a text to the length that a detail may have.
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
