//go:build cluster

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"relay/cmd/internal/cli"
	"relay/cmd/internal/serve"
	"relay/cmd/internal/show"
	"relay/cmd/internal/system"
	"relay/db"
	"relay/db/cluster"
	"relay/db/file"
	"relay/db/replication"
)

// newFile writes the file of a new cluster to path, where no file may exist.
func newFile(path string, members []member) error {
	var all []cluster.Member
	for _, m := range members {
		all = append(all, cluster.Member{Name: m.name, Addr: m.addr})
	}
	f, err := cluster.NewFile(all)
	if err != nil {
		return cli.Usagef("%w", err)
	}
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("%s already exists; name another file with --cluster", path)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return f.Write(path)
}

func addToFile(path string, m member) error {
	f, err := cluster.ReadFile(path)
	if err == nil {
		err = f.Add(cluster.Member{Name: m.name, Addr: m.addr})
	}
	if err != nil {
		return err
	}
	return f.Write(path)
}

func removeFromFile(path, name string) error {
	f, err := cluster.ReadFile(path)
	if err == nil {
		err = f.Remove(name)
	}
	if err != nil {
		return err
	}
	return f.Write(path)
}

// renewedFile prepares the file of a new cluster with the members of the one at path. write replaces that one.
func renewedFile(path string) (write func() error, err error) {
	old, err := cluster.ReadFile(path)
	if err != nil {
		return nil, err
	}
	f, err := cluster.NewFile(old.Members)
	if err != nil {
		return nil, err
	}
	f.LogBytes = old.LogBytes
	return func() error { return f.Write(path) }, nil
}

// joined is a serve.Node and the Gate of its store.
type joined struct {
	*cluster.Node
	path string // of the cluster file
}

// join starts the node that c names. If the node has no database, it gets a copy of another node's. When ctx
// ends, it stops waiting for other nodes.
func join(ctx context.Context, c config) (serve.Node, error) {
	f, err := cluster.ReadFile(c.file)
	if err != nil {
		return nil, err
	}
	folder, err := logFolder(c.DB)
	if err != nil {
		return nil, err
	}
	missing, err := mustBeOfCluster(c.DB)
	if err != nil {
		return nil, err
	}
	n, err := cluster.Start(ctx, cluster.Config{
		File: f, Node: c.name, Dir: folder, Version: cli.BuildVersion().Version, Logger: c.Log, Fatal: c.Fatal,
		Snapshot: func(ctx context.Context, to string) error {
			_, err := file.Backup(ctx, file.BackupOptions{From: c.DB, To: to, Schema: c.Schema})
			return err
		},
	})
	if err == nil && missing {
		c.Log.Info("this node has no database; asking the other nodes for a copy of theirs", "db", c.DB)
		if err = n.FetchSnapshot(ctx, c.DB); err != nil {
			err = errors.Join(err, n.Close())
		}
	}
	if err != nil {
		return nil, err
	}
	return joined{n, c.file}, nil
}

// mustBeOfCluster refuses a plain database. missing reports that no database exists.
func mustBeOfCluster(path string) (missing bool, err error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	_, follows, err := file.ReplicaAt(path)
	if err == nil && !follows {
		err = fmt.Errorf("%s is a plain database, which belongs to no cluster: begin a cluster with it by "+
			"relay cluster init; on the other machines move it away, and the node gets a copy", path)
	}
	return false, system.Denied(path, false, err)
}

func (j joined) Configure(o *db.Options) {
	o.Log = &replication.Following{Log: j.Node, Keeps: j.KeepsLog, CommonRules: j.CommonRules}
	o.Gate, o.Create = j, false
}

func (j joined) Attach(d *db.DB) { j.Node.Attach(d) }

func (j joined) Reload() error {
	f, err := cluster.ReadFile(j.path)
	if err != nil {
		return err
	}
	return j.SetFile(f)
}

// Status returns the state of the cluster in the form that relay cluster status reads.
func (j joined) Status(ctx context.Context) (json.RawMessage, error) {
	st := j.Node.Status(ctx)
	told := status{Cluster: st.Cluster, Node: st.Node, Fresh: st.Fresh, Leader: show.Optional(st.Leader), First: st.First,
		Last: st.Last, Bytes: st.Bytes}
	for _, m := range st.Members {
		t := memberStatus{Name: m.Name, Addr: m.Addr, Live: m.Live, Follows: m.Follows, Holds: m.Holds, Applied: m.Applied,
			Differs: m.Differs, Version: m.Version, Rules: m.Rules, Knows: m.Knows}
		if m.Silence >= 0 {
			s := m.Silence.Seconds()
			t.SilentFor = &s
		}
		if m.ClockKnown {
			s := m.ClockAhead.Seconds()
			t.Clock = &s
		}
		told.Members = append(told.Members, t)
	}
	return json.Marshal(told)
}
