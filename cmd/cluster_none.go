//go:build !cluster

package cmd

import (
	"context"
	"errors"
	"log/slog"
)

// errNoClusters is what this program says to all that needs a cluster.
var errNoClusters = errors.New("this program is built without clusters: take relay-cluster, which stands beside relay among the files of the release, or build it with go build -tags cluster (relay docs cluster)")

func newClusterFile(string, []member) error           { return errNoClusters }
func addToClusterFile(string, member) error           { return errNoClusters }
func removeFromClusterFile(string, string) error      { return errNoClusters }
func renewedClusterFile(string) (func() error, error) { return nil, errNoClusters }

func (a *app) joinCluster(context.Context, *settings, *slog.Logger, func(error)) (clusterNode, error) {
	return nil, errNoClusters
}
