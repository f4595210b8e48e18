//go:build cluster

package cluster

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"relay/db/file"
	"relay/db/lock"
)

// identity is who a node's folder says it is, how old the folder is, and what it has heard
// about the folders of the other nodes. So the nodes notice a machine that lost its disk, or
// whose disk was rolled back to an older state: it must not come back under its old name,
// because it would count as one that has all entries it has ever acknowledged.
type identity struct {
	path string

	writing sync.Mutex // one writes at a time
	mu      sync.Mutex // guards form; it is free while the file is written
	fresh   bool       // the file does not exist yet
	form    identityForm
}

type identityForm struct {
	Cluster string            `json:"cluster"`
	Node    string            `json:"node"`
	Folder  string            `json:"folder"` // random, made with the folder
	Met     map[string]string `json:"met"`    // the folder of each other node, by its name
	past
	// Known has the highest age of each incarnation of the folders of the other nodes, by the
	// nodes' names. News is written with the next change of this file; the node sends it to the
	// others at once.
	Known map[string]ages `json:"known"`
	// End is why the node does not start again, or "".
	End string `json:"end,omitempty"`
}

// ages are the highest ages of a folder that are known, by its incarnations.
type ages map[string]uint64

// past is what a folder knows of itself. A node sends it only once it is on disk. So nobody has
// heard of an age and an incarnation that the folder did not have, unless the folder was rolled
// back.
type past struct {
	Age          uint64        `json:"age"`   // it only rises (Node.grow)
	Incarnations []incarnation `json:"lives"` // the latest; one begins at each start
}

type incarnation struct {
	ID    string `json:"id"`    // random
	First uint64 `json:"first"` // the age at which it begins
}

const incarnationsKept = 16

// had reports whether the folder had an age in an incarnation. Of a time before the
// incarnations that are kept it says yes.
func (p *past) had(id string, age uint64) bool {
	end := p.Age
	for _, l := range slices.Backward(p.Incarnations) {
		if l.ID == id {
			return age <= end
		}
		end = l.First - 1
	}
	return age <= end
}

// hadAll reports whether the folder had all these ages.
func (p *past) hadAll(known ages) bool {
	for id, age := range known {
		if !p.had(id, age) {
			return false
		}
	}
	return true
}

// incarnation returns the id of the present incarnation, or "" before the first.
func (p *past) incarnation() string {
	if len(p.Incarnations) == 0 {
		return ""
	}
	return p.Incarnations[len(p.Incarnations)-1].ID
}

// readIdentity reads who the node in a folder is. Without a file, it makes a new identity,
// which rise writes.
func readIdentity(dir, node, cluster string) (*identity, error) {
	i := &identity{path: filepath.Join(dir, "node.json")}
	text, err := os.ReadFile(i.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Lstat(filepath.Join(dir, "jetstream")); err == nil {
			return nil, fmt.Errorf("%s has a log, but not the file node.json that says whose: "+
				"it is what is left of another node; move the folder away", dir)
		}
		i.fresh = true
		i.form = identityForm{Cluster: cluster, Node: node, Folder: randomID(), Met: map[string]string{},
			Known: map[string]ages{}}
		return i, nil
	case err != nil:
		return nil, err
	}
	if err := json.Unmarshal(text, &i.form); err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", i.path, err)
	}
	if i.form.Cluster != cluster || i.form.Node != node {
		return nil, fmt.Errorf("%s is the folder of node %s of cluster %s, not of node %s of cluster %s: "+
			"move it away, or start the node whose it is", dir, i.form.Node, i.form.Cluster, node, cluster)
	}
	if i.form.End != "" {
		return nil, errors.New(i.form.End)
	}
	if i.form.Met == nil {
		i.form.Met = map[string]string{}
	}
	if i.form.Known == nil {
		i.form.Known = map[string]ages{}
	}
	return i, nil
}

func randomID() string {
	id := make([]byte, 16)
	rand.Read(id) // never fails (crypto/rand)
	return hex.EncodeToString(id)
}

// get returns the identity as it is now.
func (i *identity) get() identityForm {
	i.mu.Lock()
	defer i.mu.Unlock()
	form := i.form
	form.Incarnations, form.Met, form.Known = slices.Clone(form.Incarnations), maps.Clone(form.Met), map[string]ages{}
	for name, known := range i.form.Known {
		form.Known[name] = maps.Clone(known)
	}
	return form
}

// isNew reports whether the node does not vote yet.
func (i *identity) isNew() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.fresh
}

// write applies change to a copy of the identity, writes that, and then adopts it. When it
// returns nil, the change survives a power cut.
func (i *identity) write(change func(*identityForm)) error {
	i.writing.Lock()
	defer i.writing.Unlock()
	form := i.get()
	change(&form)
	text, err := json.Marshal(form)
	if err == nil {
		err = lock.Replace(i.path, text)
	}
	if err == nil {
		err = file.SyncDir(filepath.Dir(i.path)) // else the old file may reappear
	}
	if err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.fresh = false
	change(&i.form)
	return nil
}

// rise increases the folder's age by one.
func (i *identity) rise() error {
	return i.write(func(f *identityForm) { f.Age++ })
}

// live begins an incarnation of the folder.
func (i *identity) live() error {
	id := randomID()
	return i.write(func(f *identityForm) {
		f.Age++
		f.Incarnations = append(f.Incarnations, incarnation{id, f.Age})
		f.Incarnations = f.Incarnations[max(0, len(f.Incarnations)-incarnationsKept):]
	})
}

// end prevents further starts of the node.
func (i *identity) end(why error) error {
	return i.write(func(f *identityForm) { f.End = why.Error() })
}

var (
	errOtherFolder = errors.New("it has another folder than before")
	errOlder       = errors.New("its folder is in an older state than before")
)

// note notes what another node says about itself and others. When a node asks to be admitted,
// note returns once what it says about itself is on disk. Errors: errOtherFolder, errOlder,
// and those of the disk; then the caller leaves out the beat.
func (i *identity) note(b *beat) error {
	if b.New {
		return nil
	}
	i.mu.Lock()
	met, known, fresh := i.form.Met[b.Node], i.form.Known[b.Node], i.fresh
	isKnown := known[b.incarnation()] >= b.Age
	change := func(f *identityForm) { f.Met[b.Node], f.Known[b.Node] = b.Folder, ages{b.incarnation(): b.Age} }
	switch {
	case met != "" && met != b.Folder:
		i.mu.Unlock()
		return fmt.Errorf("node %s: %w", b.Node, errOtherFolder)
	case !b.hadAll(known):
		i.mu.Unlock()
		return fmt.Errorf("node %s: %w", b.Node, errOlder)
	case fresh: // it is written once the node is admitted
		i.form.Met[b.Node] = b.Folder
		i.mu.Unlock()
		return nil
	}
	for name, known := range b.Known {
		i.hear(name, known)
	}
	if met != "" && (isKnown || !b.Asking) {
		change(&i.form)
		i.mu.Unlock()
		return nil
	}
	i.mu.Unlock()
	return i.write(change)
}

// hear notes what a third node says about another one. The caller must hold the lock.
func (i *identity) hear(name string, known ages) {
	if name == i.form.Node {
		return
	}
	if i.form.Known[name] == nil {
		i.form.Known[name] = ages{}
	}
	for id, age := range known {
		i.form.Known[name][id] = max(i.form.Known[name][id], age)
	}
}
