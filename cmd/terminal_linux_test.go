package cmd_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"relay/cmd"
)

// newTerminal makes a terminal. The output of a program can be read, byte for
// byte, from screen.
func newTerminal(t testing.TB) (terminal *os.File, screen *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("there are no terminals here: ", err)
	}
	t.Cleanup(func() { screen.Close() })
	fd := int(screen.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	settings, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	settings.Oflag &^= unix.OPOST // which would write each line feed as two bytes
	if err := unix.IoctlSetTermios(int(terminal.Fd()), unix.TCSETS, settings); err != nil {
		t.Fatal(err)
	}
	return terminal, screen
}

// watched returns a terminal and what is shown on it. end waits until everything
// that was written has been read: call it when the program has ended. A terminal
// that is closed may forget what nobody has read yet.
func watched(t testing.TB) (terminal *os.File, shown *output, end func()) {
	t.Helper()
	const last = "\x00the end\x00"
	terminal, screen := newTerminal(t)
	shown, read := newOutput(), make(chan struct{})
	go func() {
		defer close(read)
		for b := make([]byte, 64<<10); ; {
			n, err := screen.Read(b)
			shown.Write(b[:n])
			if err != nil || shown.cut(last) {
				return
			}
		}
	}()
	return terminal, shown, func() {
		io.WriteString(terminal, last)
		<-read
		terminal.Close()
	}
}

// cut removes last from the end, and returns false if it is not there.
func (o *output) cut(last string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := o.text.Len() - len(last)
	if n < 0 || string(o.text.Bytes()[n:]) != last {
		return false
	}
	o.text.Truncate(n)
	return true
}

// launchOnTerminal is launch with terminals for stdout and stderr, one each.
func launchOnTerminal(t testing.TB, c *exec.Cmd, env []string) *server {
	t.Helper()
	out, shownOut, endOut := watched(t)
	errs, shownErrs, endErrs := watched(t)
	c.Stdout, c.Stderr = out, errs
	s := launch(t, c, env)
	s.stdout, s.stderr = shownOut, shownErrs
	ended := s.exited
	s.exited = make(chan struct{})
	go func() {
		<-ended
		endOut()
		endErrs()
		close(s.exited)
	}()
	return s
}

// onTerminal runs the program to its end, with terminals for stdout and stderr.
func onTerminal(t testing.TB, env []string, args ...string) result {
	t.Helper()
	s := launchOnTerminal(t, exec.Command(binary, args...), env)
	code := s.wait()
	return result{s.stdout.String(), s.stderr.String(), code}
}

// hereOnTerminal is onTerminal in this process, with its environment.
func hereOnTerminal(t testing.TB, args ...string) result {
	t.Helper()
	out, shownOut, endOut := watched(t)
	errs, shownErrs, endErrs := watched(t)
	code := cmd.Main(schema(), args, strings.NewReader(""), out, errs)
	endOut()
	endErrs()
	return result{shownOut.String(), shownErrs.String(), code}
}
