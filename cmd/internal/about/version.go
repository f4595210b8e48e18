package about

import (
	"fmt"

	"github.com/spf13/cobra"

	"relay/cmd/internal/cli"
)

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  relay version --json",
		Args:    cli.Exactly(0, "no arguments"),
		RunE: func(*cobra.Command, []string) error {
			v := cli.BuildVersion()
			if a.JSON {
				return a.PrintJSON(v)
			}
			_, err := fmt.Fprintf(a.Stdout, "relay %s (commit %s, %s)\n", v.Version, v.Commit, v.Go)
			return err
		},
	}
}
