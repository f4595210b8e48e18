package ws_test

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"relay/db/relay"
	"relay/db/scratch"
	"relay/ws"
)

const fewFiles = "RELAY_WS_TEST_FEW_FILES"

// Some Mechas leave a frame half sent on all of their sockets, in a process that may
// open 1,024 files. Others are served as ever: their frames may come in two parts, a
// slow reader keeps its connection, and sockets that have gone leave the count.
func TestHalfFramesOfSomeLockOutNobody(t *testing.T) {
	if os.Getenv(fewFiles) == "" {
		t.Parallel()
		child := exec.Command("sh", "-c", `ulimit -n 1024 && exec "$0" "$@"`, os.Args[0], "-test.run=^"+t.Name()+"$", "-test.short", fmt.Sprintf("-long=%v", scratch.IsLong()))
		child.Env = append(os.Environ(), fewFiles+"=1")
		if out, err := child.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	r := mustServe(t, func(c *ws.Config) {
		c.MaxSocketsPerMecha, c.MessageTimeout, c.PingEvery, c.DeadAfter = 16, time.Hour, time.Hour, time.Hour
	})
	alice, bob := r.mustPair()
	half := masked(fin|opText, ackOf("x"))[:9]
	for _, name := range []relay.Address{"m1^test", "m2^test", "m3^test", "m4^test"} {
		k := r.mustIssue(name)
		for range 16 {
			r.mustUpgrade(k, "sync_limit=0").mustWrite(half)
		}
	}
	r.mustSendBig(bob, "alice^test")
	slow := r.mustBeDeaf(alice, "sync_limit=1000")
	var read []relay.MessageID
	for range r.bigMessages() { // about 4 MB/s: some writes wait, and none for long
		id, err := slow.readMessage()
		if err != nil {
			t.Fatalf("the slow reader was cut after %d messages: %v", len(read), err)
		}
		if read = append(read, id); len(read)%scratch.Amount(t, 64, 16) == 0 {
			<-time.After(250 * time.Millisecond)
		}
	}
	if !slices.Equal(read, r.received(alice)) {
		t.Error("the slow reader has missed something")
	}
	for range 3 { // more than the places of a Mecha, if they were not given back
		var all []*raw
		for range 16 {
			c := r.mustUpgradeWhenThereIsRoom(bob)
			whole := masked(fin|opText, ackOf("x"))
			c.mustWrite(whole[:5])
			c.mustWrite(whole[5:])
			if text := c.expectFrame(opText); !strings.Contains(text, string(relay.MessageNotFound)) {
				t.Fatal(text)
			}
			c.mustWrite(half)
			all = append(all, c)
		}
		for _, c := range all {
			c.reset()
		}
	}
}

// mustUpgradeWhenThereIsRoom tries until the relay has noticed that earlier
// connections have gone.
func (r *testRelay) mustUpgradeWhenThereIsRoom(k relay.IssuedKey) (c *raw) {
	r.t.Helper()
	eventually(r.t, "there is room for a socket", func() bool {
		c = r.mustConnect()
		c.mustWrite(handshake(k, "sync_limit=0"))
		resp := c.response()
		if resp.StatusCode != 101 {
			c.Close()
		}
		return resp.StatusCode == 101
	})
	return c
}
