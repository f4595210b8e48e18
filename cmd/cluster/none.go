//go:build !cluster

package cluster

import (
	"context"
	"errors"

	"relay/cmd/internal/serve"
)

// errNoClusters is the error of everything that needs a cluster.
var errNoClusters = errors.New("this program is built without clusters: use relay-cluster, which the release " +
	"has next to relay, or build it with go build -tags cluster (relay docs cluster)")

func newFile(string, []member) error           { return errNoClusters }
func addToFile(string, member) error           { return errNoClusters }
func removeFromFile(string, string) error      { return errNoClusters }
func renewedFile(string) (func() error, error) { return nil, errNoClusters }

// join returns errNoClusters.
func join(context.Context, config) (serve.Node, error) { return nil, errNoClusters }
