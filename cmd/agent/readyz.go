package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"relay/cmd/internal/cli"
	"relay/cmd/internal/remote"
	"relay/http/client"
)

func (a *app) readyzCommand() *cobra.Command {
	var c remote.Flags
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "readyz",
		Short: "Check whether a server is ready, and which parts are not",
		Long: `Check whether a server answers requests and can write. If not, the command names
the part that is not ready, and exits with code 1. It needs no key, so a
supervisor or a container can use it as a health check.

A full disk and a search index that is catching up are reported, but do not make
the server unready.`,
		Example: `  relay readyz
  relay readyz --wait 10s && relay send bob^demo '{"text":"hello"}'
  relay readyz --url https://relay.example.com --json`,
		Args: cli.Exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.readyz(cmd.Context(), c, wait) },
	}
	cmd.Flags().DurationVar(&wait, "wait", 0, "maximum `time` to wait until the server is ready")
	c.AddServer(cmd)
	return cmd
}

const readyEvery = 100 * time.Millisecond // between two requests

// readyz asks, at least once, until the server is ready or the time is over. If the end of the time cuts a
// request short, the result of the request before it counts, which says more.
func (a *app) readyz(ctx context.Context, c remote.Flags, wait time.Duration) error {
	config, err := c.TLS()
	if err != nil {
		return err
	}
	if wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, wait)
		defer cancel()
	}
	answer, err := remote.AskReady(ctx, c.URL, config)
	if errors.As(err, new(*client.ConfigError)) {
		return remote.InFlags(err)
	}
	for wait > 0 && (err != nil || !answer.Ready) && client.Sleep(ctx, readyEvery) {
		later, e := remote.AskReady(ctx, c.URL, config)
		if ctx.Err() == nil || e == nil {
			answer, err = later, e
		}
	}
	if err != nil {
		return err
	}
	return a.printReady(answer)
}

// printReady prints the answer to stdout, even if the server is not ready: that is the result of the command.
func (a *app) printReady(answer client.Readiness) (err error) {
	switch {
	case a.JSON:
		_, err = fmt.Fprintf(a.Stdout, "%s\n", bytes.TrimSpace(answer.Answer))
	case answer.Ready:
		_, err = fmt.Fprintln(a.Stdout, "ready")
	default:
		_, err = fmt.Fprintln(a.Stdout, answer.Detail)
	}
	for _, p := range answer.Parts {
		if !p.Ready && !a.JSON && err == nil {
			_, err = fmt.Fprintf(a.Stdout, "%s: %s\n", p.Name, p.Detail)
		}
	}
	if err == nil && !answer.Ready {
		err = cli.ExitFailure
	}
	return err
}
