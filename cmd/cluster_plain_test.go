//go:build !cluster

package cmd_test

import (
	"os"
	"path/filepath"
	"testing"

	"relay/db/scratch"
)

// The plain program knows the commands and the flag of clusters, and says where to get the
// program that has them. It leaves nothing behind.
func TestThePlainProgramNamesTheOneForClusters(t *testing.T) {
	t.Parallel()
	dir := scratch.Memory(t)
	file, db := filepath.Join(dir, "relay.cluster"), filepath.Join(dir, "relay.db")
	for _, args := range [][]string{
		{"cluster", "init", "n1=127.0.0.1:1", "n2=127.0.0.1:2", "n3=127.0.0.1:3", "--cluster", file, "--db", db},
		{"cluster", "add", "n4=127.0.0.1:4", "--cluster", file},
		{"cluster", "remove", "n2", "--cluster", file},
		{"cluster", "recover", "--cluster", file, "--db", db},
		{"serve", "--addr", "127.0.0.1:0", "--cluster", file, "--node", "n1", "--db", db},
	} {
		runRefused(t, args, nil).wantCode(t, 1, "built without clusters", "relay-cluster")
	}
	runRefused(t, []string{"serve", "--cluster", file, "--db", db}, nil).wantCode(t, 2, "--cluster and --node require each other")
	runRefused(t, []string{"cluster", "leave", "--db", db}, nil).wantCode(t, 1, "no database at")
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}
