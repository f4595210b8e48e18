package db

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"relay/db/admin"
	"relay/db/look"
	"relay/db/relay"
	"relay/db/scratch"
)

// byCommand issues a key as relay key create does.
func byCommand(t *testing.T, path string, address relay.Address) error {
	t.Helper()
	d, err := Open(Options{Path: path, By: relay.Actor{UID: 7, User: "maria", Command: "key create"}})
	if err != nil {
		return err
	}
	_, err = d.Issue(&relay.IssueKey{At: time.Now(), Address: address})
	return errors.Join(err, d.Close())
}

// Commands on the same file, with or without a server, while servers come and go: each does its
// work, or says that nothing was done.
func TestCommandsWaitForEachOther(t *testing.T) {
	t.Parallel()
	first := openHere(t)
	path, schema := first.w.Path, first.opts.Schema
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	var commands sync.WaitGroup
	var mu sync.Mutex
	done, tried, ended := 0, make(chan struct{}, 100), make(chan struct{})
	for i := range scratch.Amount(t, 8, 20) {
		commands.Go(func() {
			for n := range 5 {
				err := byCommand(t, path, relay.Address(fmt.Sprintf("m%d-%d^x", i, n)))
				mu.Lock()
				if err == nil {
					done++
				} else if !strings.Contains(err.Error(), "nothing was done") && !strings.Contains(err.Error(), "nothing was written") {
					t.Error(err)
				}
				mu.Unlock()
				tried <- struct{}{}
			}
		})
	}
	go func() {
		commands.Wait()
		close(ended)
	}()
	for range 5 {
		d, err := Open(Options{Path: path, Schema: schema, Serve: true})
		for errors.Is(err, admin.ErrInUse) { // the commands were always faster
			d, err = Open(Options{Path: path, Schema: schema, Serve: true})
		}
		if err != nil {
			t.Error(err)
			break
		}
		for len(tried) > 0 {
			<-tried
		}
		select { // a command has ended while the server runs
		case <-tried:
		case <-ended:
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	<-ended
	d := openHere(t, func(o *Options) { o.Path = path })
	if n := scalar(t, d, "SELECT count(*) FROM mecha_key"); n != int64(done) || done == 0 {
		t.Errorf("%d keys, and %d commands that made one", n, done)
	}
	if n := scalar(t, d, "SELECT count(*) FROM audit WHERE user = 'maria'"); n != int64(done) {
		t.Errorf("%d acts of %d", n, done)
	}
}

// A socket is found however long the path of its folder is, and other users have the rights to it
// that they have to the file. A server whose file has too long a name for one says so; commands
// that would write are refused, others are not.
func TestASocketBesideAnyFile(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("links need a right there")
	}
	deep := filepath.Join(scratch.Memory(t), strings.Repeat("long", 40))
	if err := os.Mkdir(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	d := openHere(t, func(o *Options) { o.Path, o.Serve = filepath.Join(deep, "relay.db"), true })
	if err := byCommand(t, d.w.Path, "a^x"); err != nil {
		t.Error(err)
	}
	path := d.w.Path
	if err := errors.Join(d.Close(), os.Chmod(path, 0o660)); err != nil {
		t.Fatal(err)
	}
	openHere(t, func(o *Options) { o.Path, o.Serve = path, true })
	socket, err := admin.Socket(path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("%v, %v", info, err)
	}
	log := make(lines, 1000)
	d = openHere(t, func(o *Options) {
		o.Path, o.Serve, o.Logger = filepath.Join(scratch.Memory(t), strings.Repeat("long", 25)+".db"), true, slog.New(slog.NewTextHandler(log, nil))
	})
	log.await(t, "cannot open the socket for commands")
	if err := byCommand(t, d.w.Path, "a^x"); err == nil || !strings.Contains(err.Error(), "is in use") {
		t.Error(err)
	}
	in, err := look.Inspect(d.w.Path)
	if err != nil {
		t.Fatal(err)
	}
	in.Close()
}

// A server takes so many commands at the same time, and refuses the next one, which says so. It
// serves those that it has.
func TestCommandsAreBounded(t *testing.T) {
	t.Parallel()
	d := openHere(t, func(o *Options) { o.Serve = true })
	socket, err := admin.Socket(d.w.Path)
	if err != nil {
		t.Fatal(err)
	}
	var all []net.Conn
	for range 128 {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		all = append(all, conn)
	}
	if err := byCommand(t, d.w.Path, "a^x"); err == nil || !strings.Contains(err.Error(), "at the same time") {
		t.Error(err)
	}
	all[0].Close()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if err := byCommand(t, d.w.Path, "a^x"); err == nil {
			break
		} else if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// Only a user who may read the file can write through the socket. Bytes that are not a write
// change nothing.
func TestTheSocketForCommandsRefusesStrangers(t *testing.T) {
	t.Parallel()
	d := openHere(t, func(o *Options) { o.Serve = true })
	mustIssue(t, d, "bob^demo")
	written := d.Written()
	path, err := admin.Socket(d.w.Path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	greeting := append([]byte{2}, admin.Greeting(d.w.IDs)...)
	form := relay.AppendWrite([]byte{'w'}, &relay.RemoveMecha{At: time.Now(), Address: "bob^demo"})
	write := append(binary.AppendUvarint(nil, uint64(len(form))), form...)
	wrong := append([]byte(nil), greeting...)
	wrong[3] ^= 1
	for what, c := range map[string]struct {
		bytes  string
		answer string
	}{
		"a wrong number":  {string(wrong) + string(write), ""},
		"another version": {"\x01" + string(greeting[1:]), "of another version"},
		"half of a write": {string(greeting) + string(write[:5]), "\"n\":0}"},
		"too long":        {string(greeting) + "\xff\xff\xff\xff\x7f", "\"n\":0}"},
		"nonsense":        {string(greeting) + "\x04w\x63\x01\x00", "kind 99"},
		"no question":     {string(greeting) + "\x04qwhy", "does not know this question"},
		"no request":      {string(greeting) + "\x00", "neither a write nor a question"},
		"nothing":         {"", ""},
	} {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte(c.bytes)); err != nil {
			t.Fatal(err)
		}
		conn.(*net.UnixConn).CloseWrite()
		if got, err := io.ReadAll(conn); !strings.Contains(string(got), c.answer) || c.answer == "" && len(got) > 0 {
			t.Errorf("%s: %q, %v", what, got, err)
		}
		conn.Close()
	}
	if n := d.Written() - written; n != 0 {
		t.Errorf("strangers have made %d writes", n)
	}
	idle, err := net.Dial("unix", path) // it holds up no stop
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false) // as a server that was killed leaves its socket
	stale.Close()
	if d, err = Open(d.opts); err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := byCommand(t, d.w.Path, "alice^demo"); err != nil {
		t.Error(err)
	}
}

// So it is if the folder for temporary files has a long name, too.
func TestASocketThoughTemporaryFilesAreDeep(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("its folder for temporary files is not TMPDIR")
	}
	deep := filepath.Join(scratch.Dir(t), strings.Repeat("deep/", 25))
	if err := os.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", deep)
	d := openHere(t, func(o *Options) { o.Path, o.Serve = filepath.Join(deep, "relay.db"), true })
	if err := byCommand(t, d.w.Path, "alice^demo"); err != nil {
		t.Error(err)
	}
	if d.Written() == 0 {
		t.Error("the command did not write by the server")
	}
}
