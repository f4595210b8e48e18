//go:build cluster

package cmd_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"relay/db/relay"
)

// The power of all three machines goes at once. A real run is recorded: what each node does to its
// folder, with its part of the log, its database and node.json, and what it tells clients, in one
// order. From the record, the test rebuilds the disks that a power cut could have left at a
// moment, and starts three nodes on them. None may be refused. Every message that a client had
// been told of must be there, on each node, in the order of the whole run and without a gap, and
// every acknowledgement too; the databases must be whole and alike, and the cluster must continue.
func TestClusterThePowerGoes(t *testing.T) {
	notQuick(t)
	tool(t, "strace")
	run := recordCluster(t, "")
	states, lost := run.cut(t, rounds(t, 0, 60), false)
	t.Logf("%d messages, %d steps, %d states rebuilt: %d are not as they must be", len(run.order), len(run.steps), states, lost)
}

// The negative control: nodes that do not sync each write of the log lose what was acknowledged.
func TestClusterThePowerGoesWithoutSyncAlwaysItLoses(t *testing.T) {
	notQuick(t)
	tool(t, "strace")
	run := recordCluster(t, buildChanged(t, []change{{"../db/cluster/server.go", "SyncAlways: true", "SyncAlways: false"}}))
	states, lost := run.cut(t, 3, true)
	t.Logf("control: without SyncAlways: %d of %d states are not as they must be", lost, states)
	if lost == 0 {
		t.Error("a log that is not synced lost nothing: this test sees nothing")
	}
}

// The power of one machine goes, and the others continue. It comes back on what its disk may have, is
// taken, and catches up.
func TestClusterThePowerOfOneMachineGoes(t *testing.T) {
	notQuick(t)
	tool(t, "strace")
	c, disks := foundTrio(t), tracedDisks{}
	for _, n := range c.nodes {
		disks.begin(n)
	}
	c.start()
	l := c.load(c.nodes[0].issue(trioAddresses(4)...))
	l.calm(50)
	r := rand.New(rand.NewPCG(2, 3))
	for i := range rounds(t, 0, 60) {
		n := c.follower()
		if i%2 == 0 {
			n = c.leader()
		}
		disks.cut(n, r, i%len(survivals))
		l.calm(10)
		disks.begin(n)
		n.launch()
		if err := n.awake(patience); err != nil {
			t.Fatalf("round %d, survives: %s: %v", i, survivals[i%len(survivals)].name, err)
		}
		l.calm(10)
	}
	l.end()
	l.verify()
	t.Logf("%d messages, %d attempts that had no 201; %d equal rows", l.acked.Load(), l.retries.Load(), c.compare())
}

// The negative control: a node that does not sync node.json does not come back after the power was
// gone.
func TestClusterThePowerGoesWithoutNodeJSONSyncedItStaysAway(t *testing.T) {
	notQuick(t)
	tool(t, "strace")
	program := buildChanged(t, []change{
		{"../db/lock/replace.go", "if e := f.Sync(); err == nil", "if e := error(nil); err == nil"},
		{"../db/cluster/identity.go", "err = file.SyncDir(filepath.Dir(i.path))", "_, _ = file.SyncDir, filepath.Dir"},
	})
	c, disks := foundTrio(t), tracedDisks{}
	for _, n := range c.nodes {
		n.program = program
		disks.begin(n)
	}
	c.start()
	c.nodes[0].issue("a^power")
	n := c.follower()
	disks.cut(n, rand.New(rand.NewPCG(2, 3)), 0)
	n.launch()
	if err := n.awake(patience); err == nil {
		t.Error("it was taken: the test of the power of one machine sees nothing")
	} else {
		t.Logf("control: an age that is not synced: %v", err)
	}
}

// tracedDisks has the disks of nodes that run under strace, and their traces.
type tracedDisks map[*clusterNode]tracedDisk

type tracedDisk struct {
	*machineDisk
	trace string
}

// begin has the node run under strace from its next start on.
func (d tracedDisks) begin(n *clusterNode) {
	n.trio.t.Helper()
	d[n] = tracedDisk{newMachineDisk(n.trio.t, n.folder), n.traced()}
}

// cut takes the power of a running node, and leaves what its disk may have.
func (d tracedDisks) cut(n *clusterNode, r *rand.Rand, survival int) {
	t := n.trio.t
	t.Helper()
	disk := d[n]
	n.cutPower()
	for i, s := range readNodeTrace(t, disk.trace, n.folder, 0) {
		disk.step(s, i)
	}
	files := disk.after(r, survival)
	if err := os.RemoveAll(n.folder); err != nil {
		t.Fatal(err)
	}
	writeFolder(t, files, n.folder, n.folder)
	n.wrap = nil
}

func (d *machineDisk) step(s recordedStep, number int) {
	switch {
	case s.call.kind == tells:
	case s.ends:
		d.ends(s.call, number)
	default:
		d.begins(s.call, number)
	}
}

// A clusterRun is a recorded run of three nodes.
type clusterRun struct {
	powerRun
	*trio
	disks []*machineDisk // as they were when it began
	steps []recordedStep
}

// recordCluster has senders and a recipient at work on three nodes that run under strace. Then the
// nodes are killed.
func recordCluster(t *testing.T, program string) *clusterRun {
	t.Helper()
	run := &clusterRun{trio: foundTrio(t)}
	run.place = map[relay.MessageID]int{}
	var traces []string
	for _, n := range run.nodes {
		n.program = program
		run.disks = append(run.disks, newMachineDisk(t, n.folder))
		traces = append(traces, n.traced())
	}
	run.start()
	run.load()
	run.level()
	var steps [][]recordedStep
	for i, n := range run.nodes {
		n.cutPower()
		n.wrap = nil
		steps = append(steps, readNodeTrace(t, traces[i], n.folder, i))
	}
	run.steps = inOneOrder(steps...)
	return run
}

// load sends and acknowledges at all three nodes, long enough that the folders become older many
// times, and notes the order of the messages.
func (run *clusterRun) load() {
	run.t.Helper()
	keys := run.nodes[0].issue("a^power", "b^power", "c^power", "to^power")
	to := keys[3]
	run.level() // else a node may not know a key yet
	var wg sync.WaitGroup
	for i, n := range run.nodes {
		s, a := n.server, keys[i]
		wg.Go(func() {
			for k := range 120 {
				size := k % 7 * 400
				if k%10 == 0 {
					size = 100_000
				}
				m := s.send(a, to.Address, fmt.Sprintf(`{"text":"%s"}`, strings.Repeat("x", size)))
				if k%3 == i {
					s.ask(to, "POST", "/api/v1/messages/"+m.MessageID+"/ack", `{"status":"completed","client_ts":"2026-01-01T00:00:00Z"}`).want(s.t, 200)
				}
			}
		})
	}
	wg.Wait()
	run.level()
	for _, m := range run.nodes[0].server.history(to, "direction=in") {
		run.place[relay.MessageID(m.MessageID)] = len(run.order)
		run.order = append(run.order, relay.MessageID(m.MessageID))
	}
}

// cut rebuilds n states and gives how many of them are not as they must be. In the control,
// nothing survives that was not synced, and a fault is what is wanted.
func (run *clusterRun) cut(t *testing.T, n int, control bool) (states, faults int) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, uint64(n)))
	cuts := run.moments(t, r, n)
	told := &powerDisk{told: map[string]bool{}, finished: map[string]bool{}}
	next := 0
	for i, cut := range cuts {
		for ; next <= cut; next++ {
			s := run.steps[next]
			run.disks[s.machine].step(s, next)
			for _, id := range s.call.told {
				told.told[id] = true
			}
			for _, id := range s.call.finished {
				told.finished[id] = true
			}
		}
		var survive []string
		c := &trio{t: t, dir: filepath.Join(run.dir, fmt.Sprint("cut", i))}
		if err := os.Mkdir(c.dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for m, was := range run.nodes {
			survival := (i + m*(i/len(survivals))) % len(survivals) // first alike on all machines
			if control {
				survival = 0
			}
			survive = append(survive, survivals[survival].name)
			now := &clusterNode{trio: c, name: was.name, folder: filepath.Join(c.dir, was.name), addr: was.addr, program: was.program}
			now.db = filepath.Join(now.folder, "relay.db")
			writeFolder(t, run.disks[m].after(r, survival), was.folder, now.folder)
			c.nodes = append(c.nodes, now)
		}
		states++
		began := time.Now()
		err := run.goesOn(t, c, told)
		if err != nil {
			faults++
		}
		if err != nil || testing.Verbose() {
			t.Logf("cut at step %d of %d, %d messages told of, survives: %v: %.1f s: %v", cut, len(run.steps), len(told.told), survive, time.Since(began).Seconds(), err)
		}
		if err != nil && !control {
			t.Errorf("cut at step %d: %v", cut, err)
		}
		os.RemoveAll(c.dir)
	}
	return states, faults
}

// moments chooses n steps: half of them tell somebody of a message, half are any after the first of
// those.
func (run *clusterRun) moments(t *testing.T, r *rand.Rand, n int) (cuts []int) {
	t.Helper()
	var tellings []int
	for i, s := range run.steps {
		if s.call.kind == tells && !s.ends {
			tellings = append(tellings, i)
		}
	}
	if len(tellings) < len(run.order) || len(run.order) < 100 {
		t.Fatalf("the traces have %d tellings of %d messages", len(tellings), len(run.order))
	}
	first := tellings[0]
	for i := range n {
		cut := first + r.IntN(len(run.steps)-first)
		if i%2 == 0 {
			cut = tellings[r.IntN(len(tellings))]
		}
		cuts = append(cuts, cut)
	}
	slices.Sort(cuts)
	return cuts
}

// goesOn starts nodes on their rebuilt folders, and says what is wrong with them.
func (run *clusterRun) goesOn(t *testing.T, c *trio, told *powerDisk) error {
	t.Helper()
	for _, n := range c.nodes {
		n.launch()
	}
	defer func() {
		for _, n := range c.running() {
			n.kill()
		}
	}()
	for _, n := range c.nodes {
		if err := n.awake(patience); err != nil {
			return err
		}
	}
	c.level()
	for _, n := range c.nodes {
		if err := run.missing(t, told, n.db); err != nil {
			return fmt.Errorf("%s: %w", n.name, err)
		}
	}
	c.nodes[0].issue("next^power")
	c.compare()
	return nil
}

// awake waits until a node answers requests. It gives an error if the node ends before.
func (n *clusterNode) awake(within time.Duration) error {
	for end := time.Now().Add(within); ; {
		if isReady(n.server.url) {
			return nil
		}
		select {
		case <-n.server.exited:
			return fmt.Errorf("%s has ended with %d: %s", n.name, n.server.cmd.ProcessState.ExitCode(), n.server.stderr)
		case <-time.After(100 * time.Millisecond):
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s is not ready: %s", n.name, n.server.stderr)
		}
	}
}
