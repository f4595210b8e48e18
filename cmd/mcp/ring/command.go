// Package ring adds relay mcp to the commands, and --mcp to relay serve.
package ring

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"relay/cmd/internal/cli"
	"relay/cmd/internal/remote"
	"relay/cmd/internal/serve"
	"relay/cmd/internal/show"
	"relay/cmd/mcp"
)

func init() {
	cli.Register(cli.Ring{Name: "mcp", Commands: cli.Commands("agents", (*app).command)})
	serve.Register(newPart)
}

type app struct{ *cli.App }

func (a *app) command() *cobra.Command {
	var c remote.Flags
	var retry time.Duration
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Serve MCP tools to send and receive messages",
		Long: `Serve the Model Context Protocol (MCP) on stdin and stdout, for a program that
runs a model, such as a coding assistant, which starts this command. The model
gets seven tools to send, read and acknowledge messages as the Mecha of
RELAY_KEY, to find other Mechas, and to learn why an answer is missing.

Requests are signed, and retried while the relay restarts. The key is never in
an answer. Set it in RELAY_KEY, or in --key-file if others can read the
program's configuration. relay docs mcp has the configurations of some programs,
and an example conversation.`,
		Example: `  relay mcp --key-file ~/.config/relay/planner.key
  RELAY_URL=https://relay.example.com relay mcp`,
		Args: cli.Exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if retry < 0 {
				return cli.Usagef("--retry must not be negative")
			}
			client, err := c.Client()
			if err != nil {
				return err
			}
			if stdin, ok := a.Stdin.(*os.File); ok && show.IsTerminal(stdin) {
				fmt.Fprintln(a.Stderr, "relay mcp is waiting for a program that speaks MCP on its stdin; see relay docs mcp. "+
					"Ctrl-C ends it.")
			}
			return mcp.Serve(cmd.Context(), client, retry, a.Stdin, show.Under(a.Stdout), cli.BuildVersion().Version)
		},
	}
	c.Add(cmd)
	cmd.Flags().DurationVar(&retry, "retry", 15*time.Second, "time to retry if the relay does not answer")
	return cmd
}
