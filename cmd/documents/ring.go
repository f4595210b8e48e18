// Package documents adds the documents of the API to the program: relay openapi and relay
// asyncapi print them, and relay serve shows them. Package relay/http/documents makes them.
package documents

import (
	"encoding/json"

	"github.com/spf13/cobra"

	"relay/cmd/internal/cli"
	"relay/cmd/internal/serve"
	"relay/http"
	"relay/http/docs"
	"relay/http/documents"
)

func init() {
	cli.Register(cli.Ring{Name: "documents",
		Commands: cli.Commands("about", (*app).openAPICommand, (*app).asyncAPICommand)})
	serve.Register(func() *serve.Part { return &serve.Part{Extend: extend} })
	docs.Register(docs.Ring{Name: "documents"}) // other pages tell of it
}

// extend shows the documents, with the rows of all other parts.
func extend(c *http.Config) {
	table := func() []http.Route { return append(http.Routes(), c.Routes...) }
	c.Routes = append(c.Routes, documents.Routes(table, c.Version.Version)...)
}

type app struct{ *cli.App }

func (a *app) openAPICommand() *cobra.Command {
	return a.documentCommand("openapi", "Print the HTTP API as an OpenAPI 3.1 document",
		`Print the description of the HTTP API that this program serves: every path,
answer, refusal, field and header. A server gives the same at /openapi.json.`,
		func(version string) []byte {
			return documents.OpenAPI(append(http.Routes(), serve.Routes()...), version)
		})
}

func (a *app) asyncAPICommand() *cobra.Command {
	return a.documentCommand("asyncapi", "Print the WebSocket's frames as an AsyncAPI 3.0 document",
		`Print the description of the WebSocket that this program serves: every frame and
close code. A server gives the same at /asyncapi.json.`, documents.AsyncAPI)
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
