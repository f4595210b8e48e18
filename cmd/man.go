package cmd

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// withoutTag leaves out the line that says which library wrote a page, and when.
func withoutTag(cmd *cobra.Command) {
	cmd.DisableAutoGenTag = true
	for _, c := range cmd.Commands() {
		withoutTag(c)
	}
}

func (a *app) manCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write the manual pages into a folder",
		Long: `Write a manual page for every command into a folder, which is made if need be.
With SOURCE_DATE_EPOCH set, the same program writes the same pages.`,
		Example: `  relay man ~/.local/share/man/man1 && man relay-message-list`,
		Args:    exactly(1, "one folder"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			root := cmd.Root()
			withoutTag(root)
			if err := doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "relay " + version, Manual: "relay"}, args[0]); err != nil {
				return err
			}
			pages, err := os.ReadDir(args[0])
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(map[string]any{"dir": args[0], "files": len(pages)})
			}
			_, err = fmt.Fprintf(a.stdout, "%d pages in %s (man -l %s/relay.1)\n", len(pages), args[0], args[0])
			return err
		},
	}
}
