package cmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"relay/http"
)

func (a *app) docsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "docs [promises]",
		Short: "Print what relay promises when something fails",
		Long: `Print a page of the documentation that is in the program: promises, which says
what an answer means, what holds after a kill, a power cut, a full disk and the
like, where it does not hold, and which test shows it.

A server has it at /docs/promises.`,
		Example: `  relay docs promises
  relay docs promises | less`,
		ValidArgs: []string{"promises"},
		Args:      between(0, 1, "at most one page"),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 && args[0] != "promises" {
				return usagef("there is no page %q; there is promises", args[0])
			}
			if a.json {
				return a.printJSON(map[string]string{"page": "promises", "text": http.Promises})
			}
			_, err := fmt.Fprint(a.stdout, http.Promises)
			return err
		},
	}
}
