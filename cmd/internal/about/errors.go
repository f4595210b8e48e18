package about

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"relay/cmd/internal/cli"
	"relay/db/relay"
	"relay/http"
)

func (a *app) errorsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "errors [CODE]",
		Short: "List the error codes of the API and what they mean",
		Long: `List the codes of the API's errors, each with its HTTP status and its meaning.
An answer that is an error has the code in its JSON.`,
		Example: `  relay errors
  relay errors nonce_reused
  relay errors --json`,
		Args: cli.Between(0, 1, "at most one code"),
		RunE: func(_ *cobra.Command, args []string) error { return a.printErrors(args) },
	}
}

func (a *app) printErrors(args []string) error {
	w := tabwriter.NewWriter(a.Stdout, 0, 0, 2, ' ', 0)
	found := len(args) == 0
	var codes []string
	for _, c := range relay.Codes {
		codes = append(codes, string(c.Code))
		if len(args) > 0 && args[0] != string(c.Code) {
			continue
		}
		found = true
		if a.JSON {
			v := struct {
				Code    relay.Code `json:"code"`
				Status  int        `json:"status"`
				Meaning string     `json:"meaning"`
			}{c.Code, http.Status(c.Code), c.Meaning}
			if err := a.PrintJSON(v); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(w, "%s\t%d\t%s\n", c.Code, http.Status(c.Code), c.Meaning)
	}
	if !found {
		if meant := cli.DidYouMean("", args[0], codes); meant != "" {
			return fmt.Errorf("there is no error code %q%s", args[0], meant)
		}
		return fmt.Errorf("there is no error code %q; relay errors lists them all", args[0])
	}
	return w.Flush()
}
