//go:build cluster

package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"relay/db/relay"
	"relay/db/replication"
	"relay/db/scratch"
)

// Three nodes take messages at the same time. One that follows is closed and comes back, then
// the one that leads, which hands over before, or fails so that another one is elected. No
// message that was acknowledged is lost or doubled, and all files have the same rows.
func TestNodesComeAndGo(t *testing.T) {
	t.Parallel()
	all := startedTrio(t)
	k := all[0].issue("bob^demo")
	rounds, each := 2, 40
	if scratch.Long(t) {
		rounds, each = 10, 400
	}
	var sent []string
	for round := range rounds {
		sent = append(sent, sendAtAll(t, all, k, fmt.Sprint("all ", round), each)...)
		for _, gone := range []*machine{followers(all)[round%2], leader(all)} {
			fails := gone == leader(all) && round%2 == 1
			if fails {
				gone.nats.Shutdown()
			}
			gone.stop()
			began := time.Now()
			sent = append(sent, sendAtAll(t, others(all, gone), k, fmt.Sprint("without ", gone.name, " ", round), each)...)
			t.Logf("%d messages without %s took %v; it failed: %v", 2*each, gone.name, time.Since(began).Round(time.Millisecond), fails)
			gone.start()
			gone.waitFresh()
		}
	}
	waitLevel(all...)
	for _, m := range all {
		m.stop()
	}
	wantSame(all...)
	wantMessages(t, all[0], sent)
}

// sendAtAll sends messages at several machines at the same time, each at one after the other.
// A refusal that says that nothing was written is tried again.
func sendAtAll(t *testing.T, at []*machine, k *relay.Key, name string, each int) (sent []string) {
	t.Helper()
	var mu sync.Mutex
	var ready sync.WaitGroup
	for _, m := range at {
		ready.Go(func() {
			for i := range each {
				text := fmt.Sprintf("%s, at %s, %d", name, m.name, i)
				err := m.send(k, text)
				for end := time.Now().Add(longest); relay.ErrorCode(err) == relay.Overloaded && time.Now().Before(end); {
					err = m.send(k, text)
				}
				if err != nil {
					m.Errorf("%s: %s: %v", m.name, text, err)
					return
				}
				mu.Lock()
				sent = append(sent, text)
				mu.Unlock()
			}
		})
	}
	ready.Wait()
	return sent
}

func others(all []*machine, not *machine) (rest []*machine) {
	for _, m := range all {
		if m != not {
			rest = append(rest, m)
		}
	}
	return rest
}

const waitsForLog = "waiting for the log of the cluster"

// A node that is left alone has the lease no longer. It refuses writes as not written, and none
// is. It starts alone, says once that it waits, and closes without the others. When they are back,
// it continues.
func TestMinority(t *testing.T) {
	t.Parallel()
	all := startedTrio(t)
	k := all[0].issue("bob^demo")
	all[0].mustSend(k, "before")
	waitLevel(all...)
	alone := all[2]
	all[0].stop()
	all[1].stop()
	began := time.Now()
	wait(t, "the node that is alone has no lease", func() bool { return !alone.Fresh() })
	t.Logf("the lease was lost after %v", time.Since(began).Round(time.Millisecond))
	if alone.KeepsLog() {
		t.Error("a node without the lease keeps the log")
	}
	if err := alone.send(k, "alone"); relay.ErrorCode(err) != relay.Overloaded {
		t.Errorf("a node that is alone answered %v", err)
	}
	alone.stop()
	before := alone.log.count(waitsForLog) // it may have said so in its first run
	alone.start()
	wait(t, "it says that it waits", func() bool { return alone.log.count(waitsForLog) > before })
	all[0].start()
	all[1].start()
	for _, m := range all {
		m.waitFresh()
	}
	if said := alone.log.count(waitsForLog) - before; said != 1 { // for as long as it takes to elect a leader
		t.Errorf("it said %d times that it waits", said)
	}
	waitLeader(all)
	alone.mustSend(k, "together")
	waitLevel(alone, all[0], all[1])
	for _, m := range all {
		m.stop()
	}
	wantSame(all...)
	wantMessages(t, alone, []string{"before", "together"})
}

// A file that follows another log than the cluster stops its node, and the log is as before.
func TestOtherLog(t *testing.T) {
	t.Parallel()
	all := startedTrio(t)
	k := all[0].issue("bob^demo")
	waitLevel(all...)
	stranger := all[2]
	stranger.stop()
	stranger.dbPath += "other.db"
	if err := stranger.tryToStart(true); err != nil {
		t.Fatal(err)
	}
	stranger.wantFatal("and the file of this node follows")
	if stranger.Fresh() || stranger.KeepsLog() {
		t.Error("a stranger has the lease")
	}
	if _, err := stranger.db.Issue(&relay.IssueKey{At: time.Now(), Address: "eve^demo"}); err == nil {
		t.Error("a stranger issued a key")
	}
	before := all[0].db.Place().Applied
	all[0].mustSend(k, "on")
	if after := all[0].db.Place().Applied; after != before+1 {
		t.Errorf("%d entries were made, want 1", after-before)
	}
}

// A node that misses entries that the log has no longer stops. With the file of another node it
// continues.
func TestTruncatedLog(t *testing.T) {
	t.Parallel()
	all := clusterOf(t, "n1", "n2", "n3")
	all[0].config.File.LogBytes = minLogBytes // all nodes share the file
	startAll(all...)
	k := all[0].issue("bob^demo")
	waitLevel(all...)
	behind := all[2]
	behind.stop()
	for i := 0; ; i++ {
		all[0].mustSend(k, strings.Repeat("x", 5000))
		if s := all[0].Status(t.Context()); s.First > 5 {
			break
		}
	}
	behind.start()
	behind.wantFatal(replication.ErrLogTruncated.Error())
	behind.stop()
	behind.loseFile()
	behind.start()
	waitLevel(all...)
	for _, m := range all {
		m.stop()
	}
	wantSame(all...)
}

// Nodes whose log has lost entries that their files have stop: the log would give these numbers
// to other entries.
func TestLogThatWasRolledBack(t *testing.T) {
	t.Parallel()
	all := startedTrio(t)
	k := all[0].issue("bob^demo")
	waitLevel(all...)
	for _, m := range all {
		m.stop()
		m.copyFolder(m.config.Dir, m.config.Dir+".old")
	}
	for _, m := range all {
		m.start()
	}
	sendAtAll(t, all[:1], k, "lost", 1) // until the log takes it: all nodes have just started
	waitLevel(all...)
	for _, m := range all {
		m.stop()
		m.replaceFolder(m.config.Dir+".old", m.config.Dir)
		m.doubt = time.Second
	}
	for _, m := range all {
		m.start()
	}
	for _, m := range all {
		m.wantFatal(replication.ErrLogBehind.Error())
	}
	if err := all[0].send(k, "another"); err == nil {
		t.Error("a node took a message for a log that was rolled back")
	}
}

// A store that was changed by hand is detected at the next mark, and its node stops. The others
// continue.
func TestStoreThatDiffers(t *testing.T) {
	t.Parallel()
	all := startedTrio(t)
	k := all[0].issue("bob^demo")
	waitLevel(all...)
	changed := all[1]
	changed.stop()
	changed.execute("UPDATE replica SET hash = hash + 1")
	changed.start()
	changed.waitFresh()
	for all[0].db.Place().Applied < replication.MarkEvery {
		sendAtAll(t, []*machine{all[0], all[0], all[0], all[0], all[2], all[2], all[2], all[2]}, k, "x", 16)
	}
	changed.wantFatal("A majority agrees")
	wait(t, "the others know it", func() bool {
		for _, m := range all[0].Status(t.Context()).Members {
			if m.Differs != (m.Name == changed.name) {
				return false
			}
		}
		return true
	})
	select {
	case err := <-all[0].fatal:
		t.Errorf("%s stopped too: %v", all[0].name, err)
	case err := <-all[2].fatal:
		t.Errorf("%s stopped too: %v", all[2].name, err)
	default:
	}
}

// A node whose folder was lost does not come back under its name, since it would vote as one
// that has what it acknowledged before.
func TestLostFolder(t *testing.T) {
	t.Parallel()
	all := startedTrio(t)
	all[0].issue("bob^demo")
	waitLevel(all...)
	lost := all[1]
	lost.stop()
	named := filepath.Join(lost.config.Dir, "node.json")
	if err := os.Remove(named); err != nil {
		t.Fatal(err)
	}
	if err := lost.tryToStart(false); err == nil || !strings.Contains(err.Error(), "node.json") {
		t.Errorf("with a log that has no owner it started with %v", err)
	}
	lost.replaceFolder("", lost.config.Dir)
	if err := lost.tryToStart(false); err == nil || !errors.Is(err, errLostFolder) {
		t.Errorf("it started with %v", err)
	}
}

// A node whose clock is far off does not join the others, and says why.
func TestClockThatIsFarOff(t *testing.T) {
	t.Parallel()
	all := startedTrio(t)
	k := all[0].issue("bob^demo")
	waitLevel(all...)
	off := all[1]
	off.stop()
	off.config.skew = -time.Hour
	off.start()
	waitLeader(all)
	all[0].mustSend(k, "without n2")
	wait(t, "it says why it does not join", func() bool {
		return off.log.count("the clock of this node differs from the clocks of the other nodes by -1h0m") == 1
	})
	if off.Fresh() || off.db.Place().Applied >= all[0].db.Place().Applied {
		t.Error("it has joined")
	}
	off.stop()
	off.config.skew = 0
	off.start()
	off.waitFresh()
	waitLevel(all...)
}
