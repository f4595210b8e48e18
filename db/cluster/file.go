//go:build cluster

package cluster

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"

	"relay/db/lock"
)

// A Member is a node of a cluster: its name, as "n1", and the address of its cluster port, as
// "10.0.0.1:8090".
type Member struct {
	Name string `json:"name"`
	Addr string `json:"addr"`
}

// A File describes a cluster to all its nodes: its id, its members, and its authority for
// certificates. All nodes have the same File. Anyone who has the file can join as a node.
type File struct {
	ID       string // 32 hexadecimal digits
	Members  []Member
	Removed  []string // names of former members, which no machine may reuse
	LogBytes int64    // how large the log may grow on each node before it drops its oldest entries
	cert     *x509.Certificate
	key      crypto.Signer
}

const (
	fileVersion = 1
	maxMembers  = 9
	// Replicas is how many nodes have a copy of the log, and how many nodes a cluster has at first.
	Replicas = 3

	defaultLogBytes = 4 << 30
	minLogBytes     = 64 << 10
)

// fileForm is the form of a File on disk.
type fileForm struct {
	Version  int      `json:"version"`
	ID       string   `json:"cluster"`
	Members  []Member `json:"members"`
	Removed  []string `json:"removed,omitempty"`
	LogBytes int64    `json:"log_bytes"`
	Cert     string   `json:"authority_certificate"`
	Key      string   `json:"authority_key"`
}

// NewFile makes the file of a new cluster, with an id and an authority of its own. It needs
// at least three members, whose names and addresses are different.
func NewFile(members []Member) (*File, error) {
	if len(members) < Replicas {
		return nil, fmt.Errorf("a cluster has at least %d members; here are %d", Replicas, len(members))
	}
	id := make([]byte, 16)
	rand.Read(id) // never fails (crypto/rand)
	f := &File{ID: hex.EncodeToString(id), Members: slices.Clone(members), LogBytes: defaultLogBytes}
	if err := f.check(); err != nil {
		return nil, err
	}
	var err error
	f.cert, f.key, err = newAuthority(f.ID)
	return f, err
}

// ReadFile reads the file of a cluster. It refuses a file that others than its owner may read,
// or that has unknown fields. Errors name the path.
func ReadFile(path string) (*File, error) {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("no file of a cluster at %s (relay cluster init makes one; --cluster names another)", path)
	}
	if err != nil {
		return nil, err
	}
	if runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s has the key of the cluster, and others than its owner may use it (mode %#o): chmod 600 it",
			path, info.Mode().Perm())
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	f, err := parseFile(text)
	if err != nil {
		return nil, fmt.Errorf("%s is not a file of a cluster that this program can use: %w", path, err)
	}
	return f, nil
}

func parseFile(text []byte) (*File, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	var form fileForm
	if err := d.Decode(&form); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows its end")
	}
	if form.Version != fileVersion {
		return nil, fmt.Errorf("its version is %d; this program knows %d", form.Version, fileVersion)
	}
	f := &File{ID: form.ID, Members: form.Members, Removed: form.Removed, LogBytes: form.LogBytes}
	if err := f.check(); err != nil {
		return nil, err
	}
	var err error
	f.cert, f.key, err = readAuthority(form.Cert, form.Key)
	return f, err
}

// Write writes the file to path, readable by its owner only. It replaces an existing file.
func (f *File) Write(path string) error {
	cert, key, err := writeAuthority(f.cert, f.key)
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(fileForm{fileVersion, f.ID, f.Members, f.Removed, f.LogBytes, cert, key}, "", "  ")
	if err != nil {
		return err
	}
	return lock.Replace(path, append(text, '\n'))
}

// Add adds a member. A machine that was lost comes back under a new name: an empty disk under
// the old name could vote for a log without entries that were acknowledged.
func (f *File) Add(m Member) error {
	g := *f
	g.Members = append(slices.Clone(f.Members), m)
	if err := g.check(); err != nil {
		return err
	}
	f.Members = g.Members
	return nil
}

// Remove removes a member by its name. Two must be left, one of which gives the log to a new
// third member.
func (f *File) Remove(name string) error {
	i := f.index(name)
	switch {
	case i < 0:
		return fmt.Errorf("the cluster has no member %s", name)
	case len(f.Members) < Replicas:
		return fmt.Errorf("the cluster has %d members: add one before you remove %s", len(f.Members), name)
	}
	f.Members = slices.Delete(slices.Clone(f.Members), i, i+1)
	f.Removed = append(slices.Clone(f.Removed), name)
	return nil
}

// Address returns the address of a member, or "" for an unknown name.
func (f *File) Address(name string) string {
	if i := f.index(name); i >= 0 {
		return f.Members[i].Addr
	}
	return ""
}

func (f *File) index(name string) int {
	return slices.IndexFunc(f.Members, func(m Member) bool { return m.Name == name })
}

var (
	idForm   = regexp.MustCompile(`^[0-9a-f]{32}$`)
	nameForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$`)
)

// check returns what is wrong with the fields that people write, or nil.
func (f *File) check() error {
	if !idForm.MatchString(f.ID) {
		return fmt.Errorf("%q is not the id of a cluster, which has 32 hexadecimal digits", f.ID)
	}
	if len(f.Members) < Replicas-1 || len(f.Members) > maxMembers {
		return fmt.Errorf("a cluster has %d to %d members; here are %d", Replicas-1, maxMembers, len(f.Members))
	}
	if f.LogBytes < minLogBytes {
		return fmt.Errorf("the log needs at least %d bytes, not %d", minLogBytes, f.LogBytes)
	}
	names, addrs := map[string]bool{}, map[string]bool{}
	for _, m := range f.Members {
		if err := m.check(); err != nil {
			return err
		}
		if slices.Contains(f.Removed, m.Name) {
			return fmt.Errorf("%s was removed from the cluster: a machine that comes back has a new name", m.Name)
		}
		if names[m.Name] || addrs[m.Addr] {
			return fmt.Errorf("two members are called %s, or have the address %s", m.Name, m.Addr)
		}
		names[m.Name], addrs[m.Addr] = true, true
	}
	return nil
}

func (m Member) check() error {
	if !nameForm.MatchString(m.Name) {
		return fmt.Errorf("%q cannot be the name of a member: it has 1 to 32 of a–z, 0–9 and -, as n1", m.Name)
	}
	host, port, err := net.SplitHostPort(m.Addr)
	number, err2 := strconv.Atoi(port)
	if err != nil || err2 != nil || host == "" || number < 1 || number > 65535 {
		return fmt.Errorf("%q is not the address of member %s, which is HOST:PORT, as 10.0.0.1:8090", m.Addr, m.Name)
	}
	return nil
}
