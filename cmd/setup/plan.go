package setup

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Target is a configuration file, and what belongs into it.
type Target struct {
	Path    string
	Format  Format
	Entries []Entry
	Project string // the folder in which the file must lie; "": the file is the user's, and private
}

// Secret is a file of ours that entries name, readable by its owner only.
type Secret struct{ Path, Text string }

// Change is what happens to a file.
type Change struct {
	Path   string // as it was named
	What   string // create, change, remove, restore, clean, or nothing
	Backup string // where the text from before is, or was
	Before []byte
	After  []byte // nil: there is no file then

	was    *config
	target Target
	note   *note // what is remembered then; nil: nothing
	old    *note
}

// note is what is remembered of a file that was changed, so that it can be undone.
type note struct {
	Path    string     `json:"path"`
	Backup  string     `json:"backup,omitempty"` // "": there was no file
	Before  string     `json:"before,omitempty"` // the SHA-256 of the backup
	After   string     `json:"after"`            // and of what was written
	Made    [][]string `json:"made,omitempty"`
	Folders []string   `json:"folders,omitempty"`
	Secrets []string   `json:"secrets,omitempty"` // files of ours that the entries name
}

// Book is a folder in which the notes are.
type Book string

func (b Book) of(path string) string {
	sum := sha256.Sum256([]byte(path))
	return filepath.Join(string(b), hex.EncodeToString(sum[:12])+".json")
}

// read returns the note of a file, or nil.
func (b Book) read(path string) *note {
	var n note
	text, err := os.ReadFile(b.of(path))
	if err != nil || json.Unmarshal(text, &n) != nil || n.Path != path {
		return nil
	}
	return &n
}

func (b Book) write(n *note) error {
	text, err := json.Marshal(n)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(string(b), 0o700); err != nil {
		return err
	}
	return os.WriteFile(b.of(n.Path), append(text, '\n'), 0o600)
}

func sumOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// base returns the text without our entries, and whether there was a file. If nobody
// changed the file since setup wrote it, text is the original, byte for byte, and exact is true.
func (b Book) base(c *config, t Target) (text []byte, existed, exact bool, err error) {
	n := b.read(c.path)
	if n != nil && c.exists() && sumOf(c.text) == n.After {
		if n.Backup == "" {
			return nil, false, true, nil
		}
		if text, err := os.ReadFile(n.Backup); err == nil && sumOf(text) == n.Before {
			return text, true, true, nil
		}
	}
	if !c.exists() {
		return nil, false, true, nil
	}
	var made [][]string
	if n != nil {
		made = n.Made
	}
	text, err = strip(t.Format, c.text, t.Entries, made)
	existed = text != nil || n == nil || n.Backup != ""
	return text, existed, false, err
}

// Plan returns what it takes to bring the entries into the files. It changes nothing. An
// error names the file; one that cannot be parsed has a ParseError in it.
func (b Book) Plan(targets []Target, secrets []Secret) (all []*Change, err error) {
	for _, t := range targets {
		c, err := b.plan(t, secrets)
		if err != nil {
			return nil, named(t.Path, err)
		}
		all = append(all, c)
	}
	return all, nil
}

// named says in which file an error is.
func named(path string, err error) error {
	if errors.As(err, new(*ParseError)) {
		return fmt.Errorf("%s: %w. The file was left as it is", path, err)
	}
	return err
}

func (b Book) plan(t Target, secrets []Secret) (*Change, error) {
	was, err := readConfig(t)
	if err != nil {
		return nil, err
	}
	c := &Change{Path: t.Path, What: "nothing", Before: was.text, After: was.text, was: was, target: t,
		old: b.read(was.path)}
	if there, err := has(t.Format, was.text, t.Entries); there || err != nil {
		return c, err
	}
	base, existed, _, err := b.base(was, t)
	if err != nil {
		return nil, err
	}
	after, made, err := merge(t.Format, base, t.Entries)
	if err != nil {
		return nil, err
	}
	if ok, err := has(t.Format, after, t.Entries); err != nil || !ok { // so that no fault of ours reaches the file
		return nil, errors.Join(errors.New("the entry cannot be added to this text"), err)
	}
	c.What, c.After = "change", after
	if !was.exists() {
		c.What = "create"
	}
	c.note = &note{Path: was.path, After: sumOf(after), Made: made}
	for _, s := range secrets {
		c.note.Secrets = append(c.note.Secrets, s.Path)
	}
	if existed {
		c.note.Before = sumOf(base)
		c.Backup, err = b.backupName(was.path, base)
		c.note.Backup = c.Backup
	}
	if c.old != nil {
		c.note.Folders = c.old.Folders
	}
	return c, err
}

// backupName finds an unused name next to the file, or our own backup.
func (b Book) backupName(path string, base []byte) (string, error) {
	old := b.read(path)
	for i := range 100 {
		name := path + ".relay-backup"
		if i > 0 {
			name = fmt.Sprintf("%s.%d", name, i)
		}
		text, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) || err == nil && (bytes.Equal(text, base) || old != nil && old.Backup == name) {
			return name, nil
		}
	}
	return "", fmt.Errorf("%s has too many backups next to it", path)
}

// PlanUndo returns what it takes to take the entries out of the files again. It changes
// nothing.
func (b Book) PlanUndo(targets []Target) (all []*Change, err error) {
	for _, t := range targets {
		c, err := b.planUndo(t)
		if err != nil {
			return nil, named(t.Path, err)
		}
		all = append(all, c)
	}
	return all, nil
}

func (b Book) planUndo(t Target) (*Change, error) {
	was, err := readConfig(t)
	if err != nil {
		return nil, err
	}
	c := &Change{Path: t.Path, What: "nothing", Before: was.text, After: was.text, was: was, target: t,
		old: b.read(was.path)}
	if c.old != nil {
		c.Backup = c.old.Backup
	}
	if !was.exists() {
		return c, nil
	}
	base, existed, exact, err := b.base(was, t)
	if err != nil {
		return nil, err
	}
	switch {
	case !existed:
		c.What, c.After = "remove", nil
	case bytes.Equal(base, was.text):
	case exact:
		c.What, c.After = "restore", base
	default:
		c.What, c.After = "clean", base
		if base == nil {
			c.After = []byte{}
		}
	}
	return c, nil
}

// Apply does what was planned, or nothing: if one file cannot be written, those before it
// are put back.
func (b Book) Apply(changes []*Change, secrets []Secret) error {
	for _, s := range secrets {
		if err := writeSecret(s); err != nil {
			return err
		}
	}
	for i, c := range changes {
		if err := b.apply(c); err != nil {
			b.unnote(c)
			for _, done := range slices.Backward(changes[:i]) {
				err = errors.Join(err, b.revert(done))
			}
			return err
		}
	}
	return nil
}

// writeSecret writes a file of ours.
func writeSecret(s Secret) error {
	if text, err := os.ReadFile(s.Path); err == nil && string(text) == s.Text {
		return os.Chmod(s.Path, 0o600)
	}
	if err := os.MkdirAll(filepath.Dir(s.Path), 0o700); err != nil {
		return err
	}
	c := &config{path: s.Path}
	if text, err := os.ReadFile(s.Path); err == nil {
		c.text, c.mode = text, 0o600
	}
	return c.replace([]byte(s.Text), 0o600)
}

func (b Book) apply(c *Change) error {
	switch c.What {
	case "nothing":
		return nil
	case "create", "change":
		return b.save(c)
	case "remove":
		return c.was.remove()
	}
	return c.was.replace(c.After, c.was.mode)
}

// save writes the backup, the note and then the file, so that at any time what is there
// can be undone.
func (b Book) save(c *Change) error {
	mode, folder := c.was.mode, fs.FileMode(0o755)
	if mode == 0 {
		mode = 0o644
		if c.target.Project == "" {
			mode, folder = 0o600, 0o700
		}
		made, err := makeFolders(c.was.path, folder)
		if err != nil {
			return err
		}
		c.note.Folders = append(c.note.Folders, made...)
	}
	if c.Backup != "" {
		base, _, _, err := b.base(c.was, c.target)
		if err != nil {
			return err
		}
		backup := &config{path: c.Backup}
		if text, err := os.ReadFile(c.Backup); err == nil {
			backup.text, backup.mode = text, mode
		}
		if err := backup.replace(base, mode); err != nil {
			return err
		}
	}
	if err := b.write(c.note); err != nil {
		return err
	}
	return c.was.replace(c.After, mode)
}

// revert puts a file back as it was before Apply.
func (b Book) revert(c *Change) error {
	now := &config{path: c.was.path, text: c.After, mode: max(c.was.mode, 0o600)}
	switch {
	case c.What == "nothing":
		return nil
	case c.What == "remove":
		return (&config{path: c.was.path}).replace(c.Before, c.was.mode)
	case c.was.exists():
		if err := now.replace(c.Before, c.was.mode); err != nil {
			return err
		}
	default:
		if err := now.remove(); err != nil {
			return err
		}
	}
	b.unnote(c)
	return nil
}

// unnote takes back what was remembered of a change that has not come about. What cannot
// be taken back does no harm: the note is for a text that is not there.
func (b Book) unnote(c *Change) {
	switch {
	case c.note == nil:
	case c.old != nil:
		_ = b.write(c.old)
	default:
		b.forget(c.note)
	}
}

// Forget removes what is left of changes that were undone: backups, notes, folders that
// were made, and the secrets that no other file names. What cannot be removed stays.
func (b Book) Forget(changes []*Change) {
	for _, c := range changes {
		switch {
		case c.old == nil:
		case !c.was.exists(): // somebody has removed the file, and may want its backup
			_ = os.Remove(b.of(c.old.Path))
		default:
			b.forget(c.old)
		}
	}
}

func (b Book) forget(n *note) {
	if n.Backup != "" {
		if text, err := os.ReadFile(n.Backup); err == nil && sumOf(text) == n.Before {
			_ = os.Remove(n.Backup)
		}
	}
	_ = os.Remove(b.of(n.Path))
	for _, dir := range n.Folders {
		_ = os.Remove(dir) // only if it is empty
	}
	used := map[string]bool{}
	files, _ := filepath.Glob(filepath.Join(string(b), "*.json"))
	for _, f := range files {
		var other note
		if text, err := os.ReadFile(f); err == nil && json.Unmarshal(text, &other) == nil {
			for _, s := range other.Secrets {
				used[s] = true
			}
		}
	}
	for _, s := range n.Secrets {
		if !used[s] {
			_ = os.Remove(s)
		}
	}
}
