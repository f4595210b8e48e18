package conformance

import (
	"bytes"
	"context"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// A program is a process of the client that is judged.
type program struct {
	role  string
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has ended
	out   lines
	err   lines
}

// A line is what a program printed, and when.
type line struct {
	at   time.Time
	text string
}

// lines collects the lines of a stream. It is safe for concurrent use.
type lines struct {
	mu   sync.Mutex
	all  []line
	rest []byte
	size int
}

const maxOutput = 4 << 20 // bytes of a stream; what comes after them is not kept

// Write implements io.Writer. It never fails.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size += len(p); l.size > maxOutput {
		return len(p), nil
	}
	l.rest = append(l.rest, p...)
	for {
		i := bytes.IndexByte(l.rest, '\n')
		if i < 0 {
			return len(p), nil
		}
		l.all = append(l.all, line{time.Now(), strings.TrimRight(string(l.rest[:i]), "\r")})
		l.rest = l.rest[i+1:]
	}
}

// read returns the lines so far. The last may have no end.
func (l *lines) read() []line {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := append([]line(nil), l.all...)
	if len(l.rest) > 0 {
		all = append(all, line{time.Now(), string(l.rest)})
	}
	return all
}

func (l *lines) text() string {
	var b strings.Builder
	for _, one := range l.read() {
		b.WriteString(one.text + "\n")
	}
	return b.String()
}

// startProgram starts a program with these arguments and variables.
func startProgram(command []string, role string, args, env []string) (*program, error) {
	p := &program{role: role, ended: make(chan struct{})}
	all := append(append(append([]string(nil), command[1:]...), role), args...)
	p.cmd = exec.Command(command[0], all...)
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = env, &p.out, &p.err
	p.cmd.WaitDelay = time.Second // a child of its own may keep the streams open
	ownGroup(p.cmd)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.ended)
		p.cmd.Wait() // the exit code is read from its ProcessState
	}()
	return p, nil
}

// within reports whether the program ends within this time, and before the end of ctx.
func (p *program) within(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.ended:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return p.hasEnded()
}

func (p *program) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// kill ends the program, with the processes that it has started, and waits for it.
func (p *program) kill() {
	killGroup(p.cmd)
	<-p.ended
}

func (p *program) code() int { return p.cmd.ProcessState.ExitCode() }
