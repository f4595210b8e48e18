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
		Short: "Serve a model's program: its tools to send and receive",
		Long: `Speak the Model Context Protocol (MCP) on stdin and stdout, for a program that
runs a model, such as a coding assistant: it starts this command itself. The
model gets seven tools, by which it sends, reads and acknowledges messages as
the Mecha of RELAY_KEY, finds other Mechas, and learns why an answer is missing.

Requests are signed, and tried again while the relay restarts. The key is in no
answer. Name it by RELAY_KEY, or by --key-file if the program's configuration
is readable to others. relay docs mcp has the configurations of some programs,
and a conversation as an example.`,
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
				fmt.Fprintln(a.Stderr, "relay mcp waits for a program that speaks MCP on its stdin; see relay docs mcp. "+
					"Ctrl-C ends it.")
			}
			return mcp.Serve(cmd.Context(), client, retry, a.Stdin, show.Under(a.Stdout), cli.BuildVersion().Version)
		},
	}
	c.Add(cmd)
	cmd.Flags().DurationVar(&retry, "retry", 15*time.Second, "how long to try again if the relay does not answer")
	return cmd
}
