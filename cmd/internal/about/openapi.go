package about

import (
	"encoding/json"

	"github.com/spf13/cobra"

	"relay/cmd/internal/cli"
	"relay/http"
)

func (a *app) openAPICommand() *cobra.Command {
	return a.documentCommand("openapi", "Print the HTTP API as an OpenAPI 3.1 document",
		`Print the description of the HTTP API that this program serves: every path,
answer, refusal, field and header. A server gives the same at /openapi.json.`, http.OpenAPI)
}

func (a *app) asyncAPICommand() *cobra.Command {
	return a.documentCommand("asyncapi", "Print the WebSocket's frames as an AsyncAPI 3.0 document",
		`Print the description of the WebSocket that this program serves: every frame and
close code. A server gives the same at /asyncapi.json.`, http.AsyncAPI)
}

// documentCommand makes a command that prints a document of the API.
func (a *app) documentCommand(name, short, long string, document func(version string) []byte) *cobra.Command {
	return &cobra.Command{
		Use:     name,
		Short:   short,
		Long:    long,
		Example: "  relay " + name + " > " + name + ".json",
		Args:    cli.Exactly(0, "no arguments"),
		RunE: func(*cobra.Command, []string) error {
			text := document(cli.BuildVersion().Version)
			if a.JSON {
				return a.PrintJSON(json.RawMessage(text)) // on one line, like all that --json prints
			}
			_, err := a.Stdout.Write(text)
			return err
		},
	}
}
