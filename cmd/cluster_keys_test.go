//go:build cluster && !windows

package cmd_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"relay/db/scratch"

	"github.com/coder/websocket"
)

// A write that one node has taken is refused by all others, if it is repeated. A key that is
// revoked at one node works at none when the command has returned, not even at one that does
// not hear of it: that one answers no reads.
func TestClusterRefusesReplaysAndRevokedKeys(t *testing.T) {
	t.Parallel()
	c := newTrio(t)
	all := c.nodes[0].issue("alice^trio", "bob^trio", "carol^trio")
	alice, bob, carol := all[0], all[1], all[2]
	c.nodes[2].server.ask(alice, "GET", "/api/v1/whoami", "").want(t, 200)
	send := alice.request("POST", "/api/v1/messages", `{"to":"bob^trio","payload":{}}`)
	id := ""
	for i, n := range c.nodes {
		ans, err := send.to(n.server.url)
		switch {
		case err != nil:
			t.Fatal(err)
		case i == 0:
			id = parse[record](t, ans.want(t, 201)).MessageID
		default:
			ans.wantProblem(t, 401, "nonce_reused")
			n.server.ask(alice, "GET", "/api/v1/messages/"+id, "").want(t, 200) // at once, even if the node was behind
		}
	}
	for _, n := range c.nodes[1:] { // they let their sender write later
		handshake := n.replayOf(c.nodes[0], http.StatusSwitchingProtocols, func() request {
			return bob.request("GET", "/api/v1/ws/mecha/"+bob.Address, "", "Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
		})
		ticket := n.replayOf(c.nodes[0], http.StatusCreated, func() request {
			return bob.request("POST", "/api/v1/mecha/"+bob.Address+"/ticket", "")
		})
		if handshake != http.StatusUnauthorized || ticket != http.StatusUnauthorized {
			t.Errorf("%s answered %d to a handshake and %d to a question for a ticket that have come before, want 401", n.name, handshake, ticket)
		}
	}
	mustRelay(t, "key", "revoke", alice.KeyID, "--db", c.nodes[1].db)
	for _, n := range c.nodes {
		n.server.ask(alice, "GET", "/api/v1/whoami", "").wantProblem(t, 401, "key_revoked")
		n.server.ask(alice, "POST", "/api/v1/messages", `{"to":"bob^trio","payload":{}}`).wantProblem(t, 401, "key_revoked")
	}
	c.nodes[2].wantSocketsClosedOfKeysRevokedAt(c.nodes[0], bob)

	away := c.nodes[2]
	away.signal(syscall.SIGSTOP)
	mustRelay(t, "key", "revoke", carol.KeyID, "--db", c.nodes[1].db)
	away.signal(syscall.SIGCONT)
	for range 20 {
		ans := away.askOnce(carol, "GET", "/api/v1/whoami", "")
		if ans.code() != "key_revoked" && ans.code() != "not_current" {
			t.Fatalf("a node that was away when the key was revoked answers %d %s", ans.status, ans.body)
		}
	}
	away.ready()
	away.server.ask(carol, "GET", "/api/v1/whoami", "").wantProblem(t, 401, "key_revoked")
	c.compare()
}

// replayOf has another node take a request, and gives the status that this one answers to the same
// request. While one of them says "not now", it does so with another request: one that was refused has
// used up its nonce at the node that refused it.
func (n *clusterNode) replayOf(first *clusterNode, taken int, make func() request) (status int) {
	t := n.trio.t
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		r := make()
		switch got := first.server.statusOf(r); got {
		case taken:
			if status = n.server.statusOf(r); status != http.StatusServiceUnavailable {
				return status
			}
		case http.StatusServiceUnavailable:
		default:
			t.Fatalf("%s answered %d to %s %s, want %d", first.name, got, r.method, r.path, taken)
		}
	}
	return status
}

// wantSocketsClosedOfKeysRevokedAt expects a node to close a socket once its key is revoked at another
// node. A node that loses its lease meanwhile rightly says 1013: then the next key decides.
func (n *clusterNode) wantSocketsClosedOfKeysRevokedAt(other *clusterNode, a agent) {
	t := n.trio.t
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		conn := n.server.dial(a, "?sync_limit=0")
		mustRelay(t, "key", "revoke", a.KeyID, "--db", other.db)
		_, frame, err := conn.Read(ctx)
		code := websocket.CloseStatus(err)
		if code == websocket.StatusPolicyViolation {
			return
		}
		if code != websocket.StatusTryAgainLater || ctx.Err() != nil {
			t.Fatalf("frame %q, error %v; want close code 1008", frame, err)
		}
		a = other.issue(a.Address)[0]
	}
}

// signal sends a signal to a node.
func (n *clusterNode) signal(s os.Signal) {
	n.trio.t.Helper()
	if err := n.server.cmd.Process.Signal(s); err != nil {
		n.trio.t.Fatal(err)
	}
}

// A node that hears no others refuses reads and closes its sockets, and takes no writes. Once
// it hears them again it continues.
func TestClusterNodeThatIsCutOff(t *testing.T) {
	t.Parallel()
	c := newTrio(t)
	alice := c.nodes[0].issue("alice^trio")[0]
	alone := c.nodes[0]
	conn := alone.server.dial(alice, "")
	for _, n := range c.nodes[1:] {
		n.signal(syscall.SIGSTOP)
	}
	began := time.Now()
	wantClosed(t, conn, 1013, patience)
	t.Logf("its socket was closed %.2f s after the other nodes stood still", time.Since(began).Seconds())
	alone.until("it has no lease", func() bool { return !alone.status().Fresh }) // the socket may have been closed by an earlier loss
	alone.askOnce(alice, "GET", "/api/v1/whoami", "").wantProblem(t, 503, "not_current")
	if isReady(alone.server.url) {
		t.Error("a node without a lease says that it is ready")
	}
	began = time.Now()
	ans := alone.askOnce(alice, "POST", "/api/v1/messages", `{"to":"alice^trio","payload":{}}`)
	ans.wantProblem(t, 503, "overloaded")
	if ans.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	t.Logf("a message was refused after %.1f s", time.Since(began).Seconds())
	if st := alone.status(); st.Fresh {
		t.Errorf("%+v", st)
	}
	for _, n := range c.nodes[1:] {
		n.signal(syscall.SIGCONT)
	}
	c.start()
	alone.server.send(alice, "alice^trio", `{}`)
	if got := alone.server.history(alice, "direction=in"); len(got) != 1 {
		t.Errorf("%d messages, want the last one alone", len(got))
	}
	c.compare()
}

// A database becomes a cluster and, later, a plain database again, on another machine. Its
// keys, ids and cursors continue all the time.
func TestClusterFromADatabaseAndBack(t *testing.T) {
	t.Parallel()
	db := filepath.Join(scratch.Dir(t), "relay.db")
	alice := issue(t, db, "alice^trio")[0]
	s := startServer(t, db)
	first := s.send(alice, "alice^trio", `{"n":1}`)
	if code := s.terminate(); code != 0 {
		t.Fatal(code)
	}
	c := newTrio(t, db)
	second := c.nodes[1].server.send(alice, "alice^trio", `{"n":2}`)
	for _, n := range c.nodes {
		n.server.record(alice, second.MessageID) // a node that does not have it yet waits for it
		if got := n.server.history(alice, "direction=in&since_message_id="+first.MessageID); len(got) != 1 || got[0].MessageID != second.MessageID {
			t.Errorf("%s, behind the cursor: %+v", n.name, got)
		}
	}
	nothing := filepath.Join(c.dir, "nothing")
	for _, refused := range []struct {
		text string
		args []string
	}{
		{"no database at", []string{"cluster", "recover", "--cluster", c.nodes[2].file(), "--db", nothing}},
		{"no file of a cluster at", []string{"cluster", "add", "n4=127.0.0.1:4", "--cluster", nothing}},
		{"already being served", []string{"cluster", "leave", "--db", c.nodes[2].db}},
		{"already being served", []string{"cluster", "recover", "--cluster", c.nodes[2].file(), "--db", c.nodes[2].db}},
		{"a plain database", []string{"serve", "--addr", "127.0.0.1:0", "--cluster", c.nodes[2].file(), "--node", "n3", "--db", db}},
		{"no member", []string{"serve", "--addr", "127.0.0.1:0", "--cluster", c.nodes[2].file(), "--node", "n9", "--db", filepath.Join(c.dir, "new.db")}},
		{"already exists", []string{"cluster", "init", "n1=127.0.0.1:1", "n2=127.0.0.1:2", "n3=127.0.0.1:3", "--cluster", c.nodes[2].file(), "--db", filepath.Join(c.dir, "new.db")}},
	} {
		runRelay(t, refused.args...).wantCode(t, 1, refused.text)
	}
	if left, _ := filepath.Glob(nothing + "*"); len(left) > 0 {
		t.Error("left behind:", left)
	}
	c.level()
	for _, n := range c.nodes {
		n.stop()
	}
	last := c.nodes[2]
	runRelay(t, "serve", "--addr", "127.0.0.1:0", "--db", last.db).wantCode(t, 1, "relay cluster leave")
	runRelay(t, "key", "create", "bob^trio", "--db", last.db).wantCode(t, 1, "start it with relay serve --cluster")
	if said := mustRelay(t, "cluster", "status", "--db", last.db); !strings.Contains(said, "no node serves") {
		t.Error(said)
	}
	mustRelay(t, "cluster", "leave", "--db", last.db)
	runRelay(t, "cluster", "leave", "--db", last.db).wantCode(t, 1, "belongs to no cluster")
	if err := os.Mkdir(last.db+".cluster", 0o700); err != nil { // as a command that was killed leaves it
		t.Fatal(err)
	}
	mustRelay(t, "cluster", "leave", "--db", last.db)
	wantWhole(t, last.db)
	s = startServer(t, last.db)
	third := s.send(alice, "alice^trio", `{"n":3}`)
	if got := s.history(alice, "direction=in&since_message_id="+first.MessageID); len(got) != 2 || got[0].MessageID != second.MessageID || got[1].MessageID != third.MessageID {
		t.Errorf("behind the cursor: %+v", got)
	}
	if left, err := os.Stat(last.db + ".cluster"); err == nil {
		t.Errorf("%s is still there", left.Name())
	}
}
