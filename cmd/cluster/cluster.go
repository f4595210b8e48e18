// Package cluster has the command relay cluster, and the node that relay serve --cluster starts. The
// protocol between nodes is in package db/cluster, which is built only with the build tag cluster:
// node.go has the code that needs it, and none.go the errors of a program without it.
//
// This package creates and changes the cluster file, knows the folder of a node's part of the log, and has a
// database join and leave a cluster. A server joins the cluster before it opens the store, in the order of
// serve.Node.
package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"relay/cmd/internal/cli"
	"relay/cmd/internal/serve"
	"relay/cmd/internal/system"
	"relay/db/replication"
)

// A member is a node of a cluster as the arguments name it.
type member struct{ name, addr string }

// config has what a node needs: the cluster file, its own name in it, and the description of the server that is
// about to open the store.
type config struct {
	serve.Joining
	file, name string
}

const defaultFile = "relay.cluster"

type app struct{ *cli.App }

// newCommand returns relay cluster.
func newCommand(of *cli.App) *cobra.Command {
	a := &app{of}
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Run one relay on three machines (preview)",
		Long: `Run one relay on three machines, so that it survives the loss of one. A cluster
does not send faster. relay docs cluster explains how it works, and what to do
when a machine is lost.

This is a preview. It needs the program relay-cluster, which has all commands of
relay.`,
		Example: `  relay cluster init n1=10.0.0.1:8090 n2=10.0.0.2:8090 n3=10.0.0.3:8090
  relay serve --cluster relay.cluster --node n1
  relay cluster status`,
	}
	cli.Group(cmd)
	cmd.AddCommand(a.initCommand(), a.statusCommand(), a.addCommand(), a.removeCommand(), a.leaveCommand(),
		a.recoverCommand())
	return cmd
}

// fileFlag is the flag of the cluster file.
func fileFlag(cmd *cobra.Command, path *string) {
	cmd.Flags().StringVar(path, "cluster", defaultFile, "the cluster `file`")
}

func (a *app) initCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "init NAME=HOST:PORT…",
		Short: "Create the file of a new cluster and its first database",
		Long: `Create the file of a new cluster, with its members and its key, and make the
database of this machine the first one of the cluster. An existing database
keeps all its content; ids and cursors stay valid.

Copy the cluster file to the other machines over a private channel: anyone who
has the file can join as a node. The other machines need no database; each gets
a copy from this one when it starts. The nodes speak to each other at HOST:PORT.
Clients use the --addr of relay serve, as before.`,
		Example: `  relay cluster init n1=10.0.0.1:8090 n2=10.0.0.2:8090 n3=10.0.0.3:8090 --db relay.db
  relay serve --cluster relay.cluster --node n1`,
		Args: cli.Between(3, 9, "three members or more, as in n1=10.0.0.1:8090"),
		RunE: func(_ *cobra.Command, args []string) error {
			members, err := readMembers(args)
			if err != nil {
				return err
			}
			return a.begin(path, members)
		},
	}
	fileFlag(cmd, &path)
	a.DBFlag(cmd)
	return cmd
}

func (a *app) begin(path string, members []member) error {
	folder, err := logFolder(a.DBPath)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(folder); err == nil {
		return fmt.Errorf("%s is a node's part of the log of an earlier cluster; move it away first", folder)
	}
	if err := newFile(path, members); err != nil {
		return err
	}
	if _, err = replication.CreateLog(a.DBPath, a.Schema, a.Actor(), "with "+namesOf(members)); err != nil {
		return errors.Join(system.Denied(a.DBPath, true, err), os.Remove(path))
	}
	if a.JSON {
		return a.PrintJSON(map[string]string{"cluster": path, "db": a.DBPath})
	}
	_, err = fmt.Fprintf(a.Stdout,
		`%[1]s is the file of the cluster. Copy it to the other machines, where only its owner may read it.
Then start the node of this machine, which has %[2]s:
  relay serve --cluster %[1]s --node %[3]s --db %[2]s
and on each of the others, without a database, by its own name.
`, path, a.DBPath, members[0].name)
	return err
}

// readMembers reads arguments of the form NAME=HOST:PORT.
func readMembers(args []string) (all []member, err error) {
	for _, arg := range args {
		name, addr, ok := strings.Cut(arg, "=")
		if !ok || name == "" || addr == "" {
			return nil, cli.Usagef("%q is not a member: NAME=HOST:PORT, as in n1=10.0.0.1:8090", arg)
		}
		all = append(all, member{name, addr})
	}
	return all, nil
}

func namesOf(members []member) string {
	var names []string
	for _, m := range members {
		names = append(names, m.name+"="+m.addr)
	}
	return strings.Join(names, " ")
}

func (a *app) addCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "add NAME=HOST:PORT",
		Short: "Add a member to the cluster file",
		Long: `Add a member to the cluster file, such as the machine that replaces a lost one.
A machine that has lost its disk returns under a new name.

Then, before the new node starts, copy the file to all machines and send their
nodes SIGHUP, so that they reread it. Once the new node follows the log, remove
the lost one with relay cluster remove.`,
		Example: `  relay cluster add n4=10.0.0.4:8090
  kill -HUP $(pidof relay-cluster)`,
		Args: cli.Exactly(1, "one member, as in n4=10.0.0.4:8090"),
		RunE: func(_ *cobra.Command, args []string) error {
			members, err := readMembers(args)
			if err != nil {
				return err
			}
			if err := addToFile(path, members[0]); err != nil {
				return err
			}
			return a.sayChanged(path, members[0].name+" is added to")
		},
	}
	fileFlag(cmd, &path)
	return cmd
}

func (a *app) removeCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "remove NAME",
		Short: "Remove a member from the cluster file",
		Long: `Remove a member from the cluster file. Its name cannot be used again. Then copy
the file to the other machines and send their nodes SIGHUP, so that they reread
it. The removed member still counts until three others follow the log, so add
its successor first. Until relay cluster status shows that three members are up
to date, the cluster does not survive the loss of another one.`,
		Example: "  relay cluster remove n2",
		Args:    cli.Exactly(1, "one name (relay cluster status)"),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := removeFromFile(path, args[0]); err != nil {
				return err
			}
			return a.sayChanged(path, args[0]+" is removed from")
		},
	}
	fileFlag(cmd, &path)
	return cmd
}

func (a *app) sayChanged(path, what string) error {
	if a.JSON {
		return a.PrintJSON(map[string]string{"cluster": path})
	}
	_, err := fmt.Fprintf(a.Stdout, "%s %s: copy it to all machines, and send their nodes SIGHUP\n", what, path)
	return err
}

func (a *app) leaveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "leave",
		Short: "Turn the database of a stopped node into a plain file again",
		Long: `Turn the database of a stopped node into a plain file, which relay serve serves
without a cluster. It keeps all its content; ids and cursors stay valid. The
node's part of the log, in the folder next to the database, is removed.

First stop all nodes, and choose the database of the most advanced node (relay
cluster status): it lacks what other nodes have accepted since its last entry.
Afterwards the other databases are useless.`,
		Example: "  relay cluster leave --db relay.db",
		Args:    cli.Exactly(0, "no arguments"),
		RunE: func(_ *cobra.Command, _ []string) error {
			if err := a.leave(); err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(map[string]string{"left": a.DBPath})
			}
			_, err := fmt.Fprintf(a.Stdout, "%s is a plain file: relay serve --db %[1]s\n", a.DBPath)
			return err
		},
	}
	a.DBFlag(cmd)
	return cmd
}

// logFolder returns the folder of a node's part of the log.
func logFolder(dbPath string) (string, error) {
	path, err := filepath.Abs(dbPath)
	return path + ".cluster", err
}

// removeLog removes a node's part of the log. It reports whether it existed.
func (a *app) removeLog() (there bool, err error) {
	folder, err := logFolder(a.DBPath)
	if err != nil {
		return false, err
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return false, nil
	}
	for _, e := range entries {
		if e.Name() != "node.json" { // it says whose log this is, and is removed last
			err = errors.Join(err, os.RemoveAll(filepath.Join(folder, e.Name())))
		}
	}
	return true, errors.Join(err, os.RemoveAll(folder))
}

// leave turns the database into a plain one and removes its part of the log. If it is killed, it can be run
// again.
func (a *app) leave() error {
	err := replication.LeaveLog(a.DBPath, a.Schema, a.Actor(), "a plain file again")
	if err != nil && !errors.Is(err, replication.ErrPlain) {
		return system.Denied(a.DBPath, true, err)
	}
	there, removing := a.removeLog()
	if there {
		return removing
	}
	return errors.Join(err, removing)
}

func (a *app) recoverCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "recover",
		Short: "Begin a new cluster with the database of a stopped node",
		Long: `Begin a new cluster, of the same members, with the database of this stopped
node. Use it for a cluster that cannot continue: two of three machines are lost,
or the nodes report that the log has lost entries.

First stop all nodes, and choose the most advanced one (relay cluster status):
what only other nodes have accepted since is lost. Before this, replace each
lost machine by a new name in the cluster file (relay cluster remove and add).
The command replaces the cluster file. Copy it to the other machines, and remove
their databases and the folders next to them; each gets a copy of this database
when it starts.`,
		Example: `  relay cluster status --db relay.db
  relay cluster recover --cluster relay.cluster --db relay.db`,
		Args: cli.Exactly(0, "no arguments"),
		RunE: func(_ *cobra.Command, _ []string) error { return a.renew(path) },
	}
	fileFlag(cmd, &path)
	a.DBFlag(cmd)
	return cmd
}

func (a *app) renew(path string) error {
	write, err := renewedFile(path)
	if err != nil {
		return err
	}
	// Each step can be repeated after a kill.
	if _, err := replication.RecreateLog(a.DBPath, a.Schema, a.Actor(),
		"in the place of one that could not continue"); err != nil {
		return system.Denied(a.DBPath, true, err)
	}
	if err := write(); err != nil {
		return err
	}
	if _, err := a.removeLog(); err != nil {
		return err
	}
	if a.JSON {
		return a.PrintJSON(map[string]string{"cluster": path, "db": a.DBPath})
	}
	_, err = fmt.Fprintf(a.Stdout, `%s is the file of a new cluster, which begins with %s. Copy it to the other machines,
remove their databases and the folders next to them, and start all nodes.
`, path, a.DBPath)
	return err
}
