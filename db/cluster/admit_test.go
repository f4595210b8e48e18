//go:build cluster

package cluster

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"relay/db/relay"
)

// An image of a stopped machine's disk.
type image struct {
	m            *machine
	folder, file string
}

// takeImage copies the folder and the file of a stopped machine.
func (m *machine) takeImage(name string) image {
	m.Helper()
	i := image{m, m.config.Dir + "." + name, m.config.Dir + "." + name + ".db"}
	m.copyFolder(m.config.Dir, i.folder)
	m.copyFile(m.dbPath, i.file)
	return i
}

func (i image) putBackFolder() {
	i.m.Helper()
	i.m.replaceFolder("", i.m.config.Dir)
	i.m.copyFolder(i.folder, i.m.config.Dir)
}

func (i image) putBackFile() {
	i.m.Helper()
	i.m.loseFile()
	i.m.copyFile(i.file, i.m.dbPath)
}

func (m *machine) copyFile(from, to string) {
	m.Helper()
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, text, 0o600)
	}
	if err != nil {
		m.Fatal(err)
	}
}

// wantPutBack starts a machine and wants it to be refused before it has a part of the log.
func (m *machine) wantPutBack() {
	m.Helper()
	m.start()
	m.wantFatal("the disk of this node was put back to an older state")
	if m.isAdmitted() || m.isSure() {
		m.Error(m.name, "has a part of the log")
	}
	m.stop()
}

// A node whose folder was rolled back to an older state is refused, with the database of then or
// the present one. The others continue. With its last folder it comes back, though its database
// is old: it takes the missing entries from the log.
func TestDiskThatWasPutBack(t *testing.T) {
	t.Parallel()
	all := startedTrio(t)
	k := all[0].issue("bob^demo")
	all[0].mustSend(k, "before")
	waitLevel(all...)
	m := all[1]
	m.stop()
	old := m.takeImage("old")
	m.start()
	m.waitFresh()
	m.mustSend(k, "since")
	m.stop()
	last := m.takeImage("last")
	old.putBackFolder()
	m.wantPutBack()
	old.putBackFolder()
	old.putBackFile()
	m.wantPutBack()
	waitLeader(all)
	all[2].mustSend(k, "without it")
	last.putBackFolder()
	old.putBackFile()
	m.start()
	m.waitFresh()
	waitLevel(all...)
	m.mustSend(k, "with it")
	waitLevel(m, all[0], all[2])
	for _, m := range all {
		m.stop()
	}
	wantSame(all...)
	wantMessages(t, m, []string{"before", "since", "without it", "with it"})
}

// A folder that is rolled back to a state of while the node ran is detected, too.
func TestImageOfARunningNode(t *testing.T) {
	t.Parallel()
	all := startedTrio(t)
	k := all[0].issue("bob^demo")
	m := all[1]
	named := filepath.Join(m.config.Dir, "node.json")
	m.copyFile(named, named+".old")
	was := ageOf(t, named+".old") // the folder may have become older just before the copy
	m.mustSend(k, "since")
	wait(t, "another node knows that the folder is older", func() bool { return all[2].id.get().Known["n2"][m.id.form.incarnation()] > was })
	m.stop()
	m.copyFile(named+".old", named)
	m.wantPutBack()
}

// ageOf reads how old a folder is by a copy of its node.json.
func ageOf(t testing.TB, path string) uint64 {
	t.Helper()
	var form identityForm
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &form)
	}
	if err != nil {
		t.Fatal(err)
	}
	return form.Age
}

// When two of three were rolled back, neither is admitted, and the third one does not continue
// with either. Everything that was acknowledged is in its file.
func TestTwoDisksThatWerePutBack(t *testing.T) {
	t.Parallel()
	all := startedTrio(t)
	k := all[0].issue("bob^demo")
	waitLevel(all...)
	var old []image
	for _, m := range all[:2] {
		m.stop()
		old = append(old, m.takeImage("old"))
	}
	for _, m := range all[:2] {
		m.start()
	}
	all[0].waitFresh()
	waitLeader(all)
	all[0].mustSend(k, "acknowledged")
	waitLevel(all...)
	for _, i := range old {
		i.m.stop()
		i.putBackFolder()
		i.putBackFile()
	}
	both := all[:2]
	for _, m := range both {
		m.start()
	}
	for _, m := range both {
		m.wantFatal("the disk of this node was put back to an older state")
	}
	wait(t, "the third one has no lease", func() bool { return !all[2].Fresh() })
	if err := all[2].send(k, "alone"); relay.ErrorCode(err) != relay.Overloaded {
		t.Errorf("the third one answered %v", err)
	}
	for _, m := range all {
		m.stop()
	}
	wantMessages(t, all[2], []string{"acknowledged"})
}

// A node whose disk was rolled back meets one that has missed everything since, while the only one
// that knows is away. They cannot know it, and continue. Once the third one is back, it and the
// rolled-back node stop, and the third one has kept everything that was acknowledged.
func TestDiskThatWasPutBackUnseen(t *testing.T) {
	t.Parallel()
	all := startedTrio(t)
	k := all[0].issue("bob^demo")
	waitLevel(all...)
	knows, m, missed := all[0], all[1], all[2]
	missed.stop()
	m.stop()
	old := m.takeImage("old")
	m.start()
	m.waitFresh()
	waitLeader(all)
	m.mustSend(k, "acknowledged")
	waitLevel(m, knows)
	m.stop()
	knows.stop()
	old.putBackFolder()
	old.putBackFile()
	var ready sync.WaitGroup
	for _, m := range []*machine{m, missed} {
		ready.Go(m.start)
	}
	ready.Wait()
	m.waitFresh()
	knows.config.admitTimeout = longest // nodes that start side by side have taken 5.8 s to hear each other
	knows.start()
	m.wantFatal("the disk of this node was put back to an older state")
	knows.wantFatal("still takes part in the log")
	if knows.isAdmitted() {
		t.Error("the node that knows has a part of the log")
	}
	for _, m := range all {
		m.stop()
	}
	wantMessages(t, knows, []string{"acknowledged"})
	if err := knows.tryToStart(false); err == nil || !strings.Contains(err.Error(), errTaken.Error()) {
		t.Errorf("it started again with %v", err)
	}
}

// obstruct puts a folder where the node first writes a new node.json. A node that runs writes it at any
// time, so this waits until it does not.
func (m *machine) obstruct() (inTheWay string) {
	m.Helper()
	m.id.writing.Lock()
	defer m.id.writing.Unlock()
	inTheWay = m.id.path + ".new"
	if err := os.MkdirAll(filepath.Join(inTheWay, "x"), 0o700); err != nil {
		m.Fatal(err)
	}
	return inTheWay
}

// A node writes the age of its folder to disk before it tells the age: it does not tell an age
// that it could not write. So a node that is killed at any moment has what others know.
func TestAgeIsOnDiskBeforeItIsTold(t *testing.T) {
	t.Parallel()
	all := startedTrio(t)
	m, hears := all[1], all[0]
	inTheWay := m.obstruct()
	if err := m.id.rise(); err == nil {
		t.Fatal("a file was written where a folder is")
	}
	run, count := m.lastBeat()
	last := func() beat { return hears.lastOf("n2") }
	wait(t, "two more beats come", func() bool { return last().Run == run && last().Count >= count+2 })
	onDisk, err := readIdentity(m.config.Dir, "n2", m.config.File.ID)
	if err != nil {
		t.Fatal(err)
	}
	if told := last().Age; told != onDisk.form.Age {
		t.Errorf("it tells the age %d, and the disk has %d", told, onDisk.form.Age)
	}
	if err := os.RemoveAll(inTheWay); err != nil {
		t.Fatal(err)
	}
	wait(t, "the folder becomes older again", func() bool { return last().Age > onDisk.form.Age })
}

// A node has no part of the log until another one has on disk that it lives again: else a state of
// before could be restored unnoticed.
func TestNodeWaitsUntilItsLifeIsNoted(t *testing.T) {
	t.Parallel()
	all := startedTrio(t)
	waitLevel(all...)
	m := all[1]
	m.stop()
	for _, other := range others(all, m) {
		other.obstruct()
	}
	m.start()
	for _, other := range others(all, m) {
		wait(t, "it does not note the life", func() bool { return other.log.count("is left out") > 0 })
	}
	_, began := m.lastBeat()
	wait(t, "some beats go by", func() bool {
		_, count := m.lastBeat()
		return m.isAdmitted() || count > began+8
	})
	if m.isAdmitted() {
		t.Error("it has a part of the log")
	}
	for _, other := range others(all, m) {
		if err := os.RemoveAll(other.id.path + ".new"); err != nil {
			t.Fatal(err)
		}
	}
	m.waitFresh()
}

// lastBeat names the last beat that a machine has sent.
func (m *machine) lastBeat() (run, count uint64) {
	m.heartbeats.mu.Lock()
	defer m.heartbeats.mu.Unlock()
	return m.heartbeats.run, m.heartbeats.count
}

// lastOf returns the last beat that a machine has heard of another one.
func (m *machine) lastOf(name string) beat {
	m.heartbeats.mu.Lock()
	defer m.heartbeats.mu.Unlock()
	return m.heartbeats.peers[name].last
}

// A beat that was long on its way, by a connection that has broken since, does not say that a disk
// was rolled back.
func TestBeatThatComesLate(t *testing.T) {
	t.Parallel()
	all := startedTrio(t)
	hears := all[0]
	run, _ := all[1].lastBeat() // both may have the lease by the third node alone, and not have heard each other
	wait(t, "the other node hears this run of the node", func() bool { return hears.lastOf("n2").Run == run })
	late := hears.lastOf("n2")
	if err := all[1].id.rise(); err != nil {
		t.Fatal(err)
	}
	wait(t, "the other node knows of the rise, and hears the node", func() bool {
		hears.heartbeats.mu.Lock()
		defer hears.heartbeats.mu.Unlock()
		return hears.id.get().Known["n2"][late.incarnation()] > late.Age && hears.heartbeats.peers["n2"].last.Count > late.Count
	})
	hears.hear(late)
	hears.heartbeats.mu.Lock()
	if hears.heartbeats.peers["n2"].last.Count <= late.Count { // the next one comes in a moment
		t.Error("the late beat was not left out")
	}
	hears.heartbeats.mu.Unlock()
	all[1].mustSend(all[0].issue("bob^demo"), "on")
	waitLevel(all[1], hears)
	if hears.log.count("is left out") > 0 {
		t.Error("it takes a late beat for a fault")
	}
	hears.heartbeats.mu.Lock()
	defer hears.heartbeats.mu.Unlock()
	if hears.heartbeats.taken != nil {
		t.Error("it stops:", hears.heartbeats.taken)
	}
}

// A node that looks whether all members have the log looks for its own copy as well.
func TestANodeLooksForItsOwnCopyToo(t *testing.T) {
	t.Parallel()
	n := startedTrio(t)[0]
	holders := map[string]bool{peerID("n2"): true, peerID("n3"): true}
	if n.allHold(holders) {
		t.Error("it does without its own copy")
	}
	holders[peerID("n1")] = true
	if !n.allHold(holders) {
		t.Error("all have the log, and it looks on")
	}
}
