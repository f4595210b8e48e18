// Package child runs a relay as a process of its own, for commands that measure or judge
// one: they must be able to kill it.
package child

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

const stopTimeout = 15 * time.Second // longer than a relay takes to stop

// Relay is a process that serves. Its methods may be called concurrently.
type Relay struct {
	URL string // where it serves, as in http://127.0.0.1:41234
	PID int

	command *exec.Cmd
	log     *serverLog
	once    sync.Once
}

// Start runs program with args, which make it serve with its log as JSON (--log-format=json) on
// stderr, and returns when it says where it serves. env is its whole environment. The error repeats
// the last line of the log if the process ended before that; it is ctx's if ctx ended first. The
// end of ctx does not end a process that Start has returned: the caller ends it.
func Start(ctx context.Context, program string, args, env []string) (*Relay, error) {
	c := exec.Command(program, args...)
	c.Env = env
	stderr, err := c.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	r := &Relay{PID: c.Process.Pid, command: c, log: &serverLog{url: make(chan string, 1), ended: make(chan struct{})}}
	go r.log.read(stderr)
	select {
	case r.URL = <-r.log.url:
		return r, nil
	case <-r.log.ended:
		r.Stop()
		return nil, fmt.Errorf("the server did not start: %s", r.log.last())
	case <-ctx.Done():
		r.Kill()
		return nil, ctx.Err()
	}
}

// Environ returns this process's environment without what would change a relay's settings.
func Environ() (env []string) {
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "RELAY_") && !strings.HasPrefix(e, "REQUIRE_MESSAGE_SIGNATURE=") {
			env = append(env, e)
		}
	}
	return env
}

// Stop asks the process to end, and waits for that. It kills a process that takes longer
// than 15 seconds. To stop what has ended does nothing.
func (r *Relay) Stop() { r.end(os.Interrupt) }

// Kill ends the process at once, as a crash does, and waits for that.
func (r *Relay) Kill() { r.end(os.Kill) }

// Ended returns the last line of the log if the process ended on its own.
func (r *Relay) Ended() (last string, ended bool) {
	select {
	case <-r.log.ended:
		return r.log.last(), true
	default:
		return "", false
	}
}

func (r *Relay) end(signal os.Signal) {
	r.once.Do(func() {
		if r.command.Process.Signal(signal) != nil { // Windows has only the signal to kill
			r.command.Process.Kill()
		}
		kill := time.AfterFunc(stopTimeout, func() { r.command.Process.Kill() })
		defer kill.Stop()
		<-r.log.ended    // before Wait, which closes the pipe
		r.command.Wait() // the log has said already what went wrong
	})
}

// A serverLog reads the log of a server: first the address, later the last line, which may
// explain why the server has ended.
type serverLog struct {
	url   chan string
	ended chan struct{} // closed when the log has ended
	mu    sync.Mutex
	line  string
}

func (l *serverLog) read(r io.Reader) {
	defer close(l.ended)
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		var v struct{ Msg, URL string }
		if json.Unmarshal([]byte(line), &v) == nil && v.Msg == "serving" {
			l.url <- v.URL
		}
		l.mu.Lock()
		l.line = strings.TrimSpace(line)
		l.mu.Unlock()
	}
}

func (l *serverLog) last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.line
}
