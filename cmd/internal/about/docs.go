package about

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"relay/cmd/internal/cli"
	"relay/http/docs"
)

func (a *app) docsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "docs [NAME]",
		Short: "Read the documentation that is in the program",
		Long: `List the pages of the documentation, or print one as Markdown.

A server shows the same pages at /docs.`,
		Example: `  relay docs
  relay docs promises
  relay docs protocol | less`,
		ValidArgsFunction: completePages,
		Args:              cli.Between(0, 1, "at most one page"),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return a.listPages()
			}
			return a.printPage(args[0])
		},
	}
}

func completePages(_ *cobra.Command, args []string, _ string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
	if len(args) == 0 {
		for _, p := range docs.Pages() {
			names = append(names, cobra.CompletionWithDesc(p.Name, p.About))
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func (a *app) listPages() error {
	w := tabwriter.NewWriter(a.Stdout, 0, 0, 2, ' ', 0)
	for _, p := range docs.Pages() {
		if a.JSON {
			if err := a.PrintJSON(map[string]string{"page": p.Name, "title": p.Title, "about": p.About}); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(w, "%s\t%s\n", p.Name, p.About)
	}
	return w.Flush()
}

func (a *app) printPage(name string) error {
	var names []string
	for _, p := range docs.Pages() {
		if names = append(names, p.Name); p.Name != name {
			continue
		}
		if a.JSON {
			return a.PrintJSON(map[string]string{"page": p.Name, "title": p.Title, "text": p.Text})
		}
		_, err := fmt.Fprint(a.Stdout, p.Text)
		return err
	}
	return cli.Usagef("there is no page %q; there are %s", name, strings.Join(names, ", "))
}
