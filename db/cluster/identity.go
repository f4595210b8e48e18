//go:build cluster

package cluster

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"

	"relay/db/lock"
)

// identity is who a node's folder says it is, and which folders it has met under which name. So
// the nodes notice a machine that lost its disk: it must not come back under its old name,
// because it would count as one that has all entries it has ever acknowledged.
type identity struct {
	path  string
	fresh bool // the file is not there yet

	mu   sync.Mutex
	form identityForm
}

type identityForm struct {
	Cluster string            `json:"cluster"`
	Node    string            `json:"node"`
	Folder  string            `json:"folder"` // random, made with the folder
	Met     map[string]string `json:"met"`    // the folder of each other node, by its name
}

// readIdentity reads who the node in a folder is. If there is no such file, it makes up a new
// identity, which keep writes.
func readIdentity(dir, node, cluster string) (*identity, error) {
	i := &identity{path: filepath.Join(dir, "node.json")}
	text, err := os.ReadFile(i.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Lstat(filepath.Join(dir, "jetstream")); err == nil {
			return nil, fmt.Errorf("%s has a log, but not the file node.json that says whose: it is what is left of another node; move the folder away", dir)
		}
		folder := make([]byte, 16)
		rand.Read(folder) // never fails (crypto/rand)
		i.fresh = true
		i.form = identityForm{Cluster: cluster, Node: node, Folder: hex.EncodeToString(folder), Met: map[string]string{}}
		return i, nil
	case err != nil:
		return nil, err
	}
	if err := json.Unmarshal(text, &i.form); err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", i.path, err)
	}
	if i.form.Cluster != cluster || i.form.Node != node {
		return nil, fmt.Errorf("%s is the folder of node %s of cluster %s, not of node %s of cluster %s: move it away, or start the node whose it is", dir, i.form.Node, i.form.Cluster, node, cluster)
	}
	if i.form.Met == nil {
		i.form.Met = map[string]string{}
	}
	return i, nil
}

// keep writes the identity.
func (i *identity) keep() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.write()
}

func (i *identity) write() error {
	text, err := json.Marshal(i.form)
	if err != nil {
		return err
	}
	i.fresh = false
	return lock.Replace(i.path, text)
}

// meet notes the folder of another node. It is an error if that name had another folder before.
func (i *identity) meet(name, folder string) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch i.form.Met[name] {
	case folder:
		return nil
	case "":
	default:
		return fmt.Errorf("node %s has another folder than before", name)
	}
	i.form.Met[name] = folder
	if i.fresh { // it is written when the node is one
		return nil
	}
	return i.write()
}

// met gives the folders that this node has met.
func (i *identity) met() map[string]string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return maps.Clone(i.form.Met)
}

// introduce asks the other members, by a server that has no part of the log, whether the name
// of this new node had another folder. It waits until a majority of the members, this one
// counted, has answered. Then the node is one.
func (n *Node) introduce(ctx context.Context) error {
	s, err := n.startServer(false)
	if err != nil {
		return err
	}
	defer s.close()
	n.log.Info("this node is new: it asks the others whether they have known another one of its name", "node", n.c.Node)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended, err := n.beat(ctx, s.conn)
	if err != nil {
		return err
	}
	err = n.beats.introduced(ctx, n.c.Node, n.id.form.Folder)
	cancel()
	<-ended
	if err != nil {
		return err
	}
	return n.id.keep()
}

var errLostFolder = errors.New("the node had another folder before: a machine that has lost it comes back under a new name (relay cluster add, relay cluster remove)")

// introduced waits for the answers of introduce.
func (b *beats) introduced(ctx context.Context, name, folder string) error {
	for {
		b.mu.Lock()
		answers, changed := 1, b.changed
		for other, p := range b.peers {
			switch old := p.last.Met[name]; {
			case p.last.Run == 0:
			case old != "" && old != folder:
				b.mu.Unlock()
				return fmt.Errorf("%w (%s, as %s remembers)", errLostFolder, name, other)
			default:
				answers++
			}
		}
		enough := answers >= b.quorum
		b.mu.Unlock()
		if enough {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("the other nodes do not answer: %w", ctx.Err())
		}
	}
}

// isNew tells whether the node has no part of the log yet.
func (i *identity) isNew() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.fresh
}
