//go:build cluster

package cmd_test

import (
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A machineDisk is what the disk of a machine may hold when its power goes, after a recorded run
// up to some moment: its folder with all files of the node. Content and size of a file are as
// powerDisk says. Names are as a journal of the file system keeps them, in order: a sync of a file
// makes its name sure, and the names of the folders that it is in; a sync of a folder makes the
// names in it sure. With each of them all changes of names that came before are sure. Later
// ones may be lost.
type machineDisk struct {
	root    string
	names   map[string]*inode // as the program sees them, by their paths
	sure    map[string]*inode // the names that a power cut cannot take away
	journal []nameChange      // what makes names of sure
	open    map[int]*openFile // by the descriptor
}

// An inode is a file, or a folder, whatever its name is.
type inode struct {
	folder  bool
	sure    []byte    // the content that a power cut cannot take away
	pending []*fileOp // writes and truncations that it can take away
}

type openFile struct {
	*inode
	at    int64 // where the next write goes. The program reads no file that it writes in this way
	syncs bool  // with O_SYNC or O_DSYNC
}

// A nameChange gives a file another name. from is "" for a new file, and to for one that is removed.
type nameChange struct {
	when     int // the step after which it was done
	from, to string
	of       *inode
	in       [2]*inode // the folders of from and to
}

func (c nameChange) apply(names map[string]*inode) {
	if c.from != "" && c.to != "" && c.of.folder {
		for path, f := range names {
			if rest, ok := strings.CutPrefix(path, c.from+"/"); ok {
				delete(names, path)
				names[c.to+"/"+rest] = f
			}
		}
	}
	delete(names, c.from)
	if c.to != "" {
		names[c.to] = c.of
	}
}

// newMachineDisk has a folder as it is, all of it sure.
func newMachineDisk(t *testing.T, root string) *machineDisk {
	t.Helper()
	d := &machineDisk{root: root, sure: map[string]*inode{}}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		f := &inode{folder: e.IsDir()}
		if !f.folder {
			f.sure, err = os.ReadFile(path)
		}
		d.sure[path] = f
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	d.restart()
	return d
}

// restart has the disk as a machine finds it that starts on what is sure.
func (d *machineDisk) restart() {
	d.names, d.journal, d.open = map[string]*inode{}, nil, map[int]*openFile{}
	for path, f := range d.sure {
		d.names[path] = f
	}
}

func (d *machineDisk) rename(from, to string, of *inode, step int) {
	c := nameChange{when: step, from: from, to: to, of: of, in: [2]*inode{d.names[filepath.Dir(from)], d.names[filepath.Dir(to)]}}
	c.apply(d.names)
	d.journal = append(d.journal, c)
}

// begins notes that a call has begun: what it writes may be on the disk.
func (d *machineDisk) begins(c *diskCall, step int) {
	c.begin, c.end = step, 1<<60
	f := d.open[c.fd]
	if f == nil || !isIn(c.file, d.root) {
		return // not a file of this folder
	}
	c.of = f.inode
	switch c.name {
	case "write":
		c.offset = f.at
		f.at += int64(len(c.data))
		c.kind = writes
	case "pwrite64":
		c.kind = writes
	case "ftruncate":
		c.kind = truncates
	default:
		return
	}
	f.pending = append(f.pending, &c.fileOp)
}

// ends notes that a call has returned.
func (d *machineDisk) ends(c *diskCall, step int) {
	c.end = step
	switch c.name {
	case "write", "pwrite64":
		if f := d.open[c.fd]; c.of != nil && f != nil && f.inode == c.of && f.syncs {
			d.sync(c.of, c.begin, &c.fileOp)
		}
	case "fsync", "fdatasync":
		if c.of != nil {
			d.sync(c.of, c.begin, nil)
		}
	case "open", "openat", "creat":
		d.opened(c, step)
	case "mkdir", "mkdirat":
		if isIn(c.path, d.root) {
			d.rename("", c.path, &inode{folder: true}, step)
		}
	case "rmdir", "unlink", "unlinkat":
		if f := d.names[c.path]; f != nil {
			d.rename(c.path, "", f, step)
		}
	case "rename", "renameat", "renameat2":
		if f := d.names[c.path]; f != nil {
			d.rename(c.path, c.to, f, step)
		}
	}
}

func (d *machineDisk) opened(c *diskCall, step int) {
	delete(d.open, c.result)
	if !isIn(c.path, d.root) || strings.HasSuffix(c.path, "-shm") { // which SQLite maps, and makes again
		return
	}
	f := d.names[c.path]
	switch {
	case f == nil:
		f = &inode{}
		d.rename("", c.path, f, step)
	case strings.Contains(c.flags, "O_TRUNC"):
		f.pending = append(f.pending, &fileOp{kind: truncates, begin: c.begin, end: step})
	}
	d.open[c.result] = &openFile{inode: f, syncs: strings.Contains(c.flags, "O_SYNC") || strings.Contains(c.flags, "O_DSYNC")}
}

// sync makes sure what was complete when a sync of f began, and itself, a write that syncs.
func (d *machineDisk) sync(f *inode, began int, itself *fileOp) {
	f.pending = slices.DeleteFunc(f.pending, func(op *fileOp) bool {
		if op != itself && op.end >= began {
			return false
		}
		f.sure = op.apply(f.sure, nil)
		return true
	})
	last := -1
	for i, c := range d.journal {
		if c.when < began && (d.leadsTo(c.of, f) || f.folder && (c.in[0] == f || c.in[1] == f)) {
			last = i
		}
	}
	for _, c := range d.journal[:last+1] {
		c.apply(d.sure)
	}
	d.journal = slices.Delete(d.journal, 0, last+1)
}

// leadsTo reports whether a is f or a folder that f is in.
func (d *machineDisk) leadsTo(a, f *inode) bool {
	if a == f {
		return true
	}
	if !a.folder {
		return false
	}
	for path, have := range d.names {
		if have == f {
			for up := filepath.Dir(path); isIn(up, d.root); up = filepath.Dir(up) {
				if d.names[up] == a {
					return true
				}
			}
		}
	}
	return false
}

// after returns the files as a cut may leave them, by their paths; nil is a folder.
func (d *machineDisk) after(r *rand.Rand, survival int) map[string][]byte {
	names := map[string]*inode{}
	for path, f := range d.sure {
		names[path] = f
	}
	kept := r.IntN(len(d.journal) + 1)
	switch survivals[survival].name {
	case "nothing":
		kept = 0
	case "everything":
		kept = len(d.journal)
	}
	for _, c := range d.journal[:kept] {
		c.apply(names)
	}
	var pending []*fileOp
	of, content := map[*fileOp]*inode{}, map[*inode][]byte{}
	for _, f := range names {
		content[f] = slices.Clone(f.sure)
		for _, op := range f.pending {
			of[op] = f
			pending = append(pending, op)
		}
	}
	slices.SortFunc(pending, func(a, b *fileOp) int { return a.begin - b.begin })
	survives := survivals[survival].of(r, len(pending))
	for i, op := range pending {
		if keep, some := survives(i); some {
			content[of[op]] = op.apply(content[of[op]], keep)
		}
	}
	files := map[string][]byte{}
	for path, f := range names {
		if files[path] = append([]byte{}, content[f]...); f.folder {
			files[path] = nil
		}
	}
	return files
}

// writeFolder puts the files of a folder into another one, which it makes.
func writeFolder(t *testing.T, files map[string][]byte, from, to string) {
	t.Helper()
	paths := []string{}
	for path := range files {
		paths = append(paths, path)
	}
	slices.Sort(paths) // a folder before what is in it
	for _, path := range paths {
		name := to + strings.TrimPrefix(path, from)
		var err error
		if content := files[path]; content == nil {
			err = os.Mkdir(name, 0o700)
		} else {
			err = os.WriteFile(name, content, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func isIn(path, folder string) bool { return path == folder || strings.HasPrefix(path, folder+"/") }
