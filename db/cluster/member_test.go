//go:build cluster

package cluster

import (
	"bufio"
	"crypto/tls"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"relay/db/scratch"
)

// A machine is lost for good. A new one takes its place, with the file of another node; then the
// lost one is removed, and the new one has its copy of the log. So one more may be lost.
func TestReplacedNode(t *testing.T) {
	t.Parallel()
	all := startedTrio(t)
	k := all[0].issue("bob^demo")
	all[0].mustSend(k, "with n2")
	waitLevel(all...)
	all[1].stop()
	f := *all[0].config.File
	if err := f.Add(Member{"n4", scratch.Addr(t)}); err != nil {
		t.Fatal(err)
	}
	n4 := newMachine(t, &f, "n4")
	kept := []*machine{all[0], all[2], n4}
	for _, m := range kept[:2] {
		if err := m.SetFile(&f); err != nil {
			t.Fatal(err)
		}
	}
	n4.start()
	waitLevel(kept...)
	after := f
	if err := after.Remove("n2"); err != nil {
		t.Fatal(err)
	}
	for _, m := range kept {
		if err := m.SetFile(&after); err != nil {
			t.Fatal(err)
		}
		m.config.File = &after
	}
	holds := func(m *machine) (names string) { // as it says itself
		for _, of := range m.Status(t.Context()).Members {
			if of.Holds {
				names += of.Name + " "
			}
		}
		return names
	}
	wait(t, "n4 has a copy of the log", func() bool { return holds(n4) == "n1 n3 n4 " })
	all[0].stop()
	waitLeader(kept)
	n4.mustSend(k, "without n1")
	all[0].start()
	waitLevel(n4, all[0], all[2])
	for _, m := range kept {
		m.stop()
	}
	wantSame(kept...)
	wantMessages(t, n4, []string{"with n2", "without n1"})
	all[1].config.File = &after
	if err := all[1].tryToStart(false); err == nil {
		t.Error("a removed node started")
	}
}

// Nobody without a certificate of the cluster's authority, for the name of another member, gets
// a word from the cluster port. Clients of NATS are not let in at its own port either.
func TestForeignConnections(t *testing.T) {
	t.Parallel()
	all := startedTrio(t)
	f := all[0].config.File
	other, err := NewFile(f.Members)
	if err != nil {
		t.Fatal(err)
	}
	other.ID = f.ID
	anyone := func(string) bool { return true }
	good, err := f.tlsConfig("n2", anyone)
	if err != nil {
		t.Fatal(err)
	}
	if err := routeTo(t, f.Members[0].Addr, good); err != nil {
		t.Errorf("a member is refused: %v", err)
	}
	none := good.Clone()
	none.Certificates = nil
	foreign := good.Clone()
	stranger, err := other.leaf("n2")
	if err != nil {
		t.Fatal(err)
	}
	foreign.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &stranger, nil } // though it was asked for another one
	removed, err := f.tlsConfig("n9", anyone)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]*tls.Config{"no certificate": none, "one of another authority": foreign, "one of no member": removed} {
		if err := routeTo(t, f.Members[0].Addr, c); err == nil {
			t.Errorf("%s: let in", name)
		}
	}
	for _, o := range [][]nats.Option{nil, {nats.UserInfo(logUser, "guess")}, {nats.UserInfo(adminUser, "")}} {
		if c, err := nats.Connect(all[0].nats.ClientURL(), append(o, nats.NoReconnect())...); err == nil {
			c.Close()
			t.Error("a client of NATS was let in without the password")
		}
	}
}

// routeTo connects to a cluster port, and returns nil if NATS speaks with it as with a node.
func routeTo(t *testing.T, addr string, c *tls.Config) error {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	safe := tls.Client(conn, c)
	if _, err := safe.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	_, err = bufio.NewReader(safe).ReadString('\n')
	return err
}

// After Close nothing of a node is left.
func TestCloseLeavesNothing(t *testing.T) {
	all := startedTrio(t)
	k := all[0].issue("bob^demo")
	all[1].mustSend(k, "hello")
	for _, m := range all {
		m.stop()
	}
	var left string
	wait(t, "all goroutines end", func() bool {
		left = goroutines("nats-io", "relay/db")
		return left == ""
	})
	for _, m := range all {
		if paths, _ := filepath.Glob(filepath.Join(m.config.Dir, "snapshot-*")); len(paths) > 0 {
			t.Error("left:", paths)
		}
	}
}

// goroutines returns the stacks of goroutines that have one of the words, apart from this test's.
func goroutines(words ...string) (found string) {
	text := make([]byte, 4<<20)
	text = text[:runtime.Stack(text, true)]
	for i, stack := range strings.Split(string(text), "\n\n") {
		for _, word := range words {
			if i > 0 && strings.Contains(stack, word) && !strings.Contains(stack, "testing.(*T)") {
				found += stack + "\n\n"
				break
			}
		}
	}
	return found
}
