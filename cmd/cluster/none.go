//go:build !cluster

package cluster

import (
	"context"
	"errors"

	"relay/cmd/internal/serve"
)

// errNoClusters is what this program says to all that needs a cluster.
var errNoClusters = errors.New("this program is built without clusters: take relay-cluster, which stands beside " +
	"relay among the files of the release, or build it with go build -tags cluster (relay docs cluster)")

func newFile(string, []member) error           { return errNoClusters }
func addToFile(string, member) error           { return errNoClusters }
func removeFromFile(string, string) error      { return errNoClusters }
func renewedFile(string) (func() error, error) { return nil, errNoClusters }

// join says that there are no clusters here.
func join(context.Context, config) (serve.Node, error) { return nil, errNoClusters }
