package cluster

import (
	"context"
	"embed"

	"github.com/spf13/pflag"

	"relay/cmd/internal/cli"
	"relay/cmd/internal/serve"
	"relay/http/docs"
)

//go:embed cluster.md
var documentation embed.FS

func init() {
	cli.Register(cli.Ring{Name: "cluster", Commands: []cli.Command{{Group: "operating", Make: newCommand}}})
	serve.Register(newPart)
	docs.Register(docs.Ring{Name: "cluster", Files: documentation, Pages: []docs.Page{
		{Name: "cluster", Place: 140, Part: docs.Running, About: "three machines, of which one may be lost (preview)"},
	}})
}

func newPart() *serve.Part {
	var c config
	return &serve.Part{
		Flags: func(f *pflag.FlagSet) {
			f.StringVar(&c.file, "cluster", "", "run as a node of the cluster in this `file`, created by relay "+
				"cluster init; only in relay-cluster; a preview")
			f.StringVar(&c.name, "node", "", "this node's `member` name")
		},
		Check: func(*pflag.FlagSet) error {
			if (c.file == "") != (c.name == "") {
				return cli.Usagef("--cluster and --node require each other")
			}
			return nil
		},
		Join: func(ctx context.Context, j serve.Joining) (serve.Node, error) {
			if c.file == "" {
				return nil, nil
			}
			c.Joining = j
			return join(ctx, c)
		},
	}
}
