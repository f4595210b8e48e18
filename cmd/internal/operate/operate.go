// Package operate is the commands that change a database or copy it: keys, Mechas and
// their profiles, what searches have learned; backup and restore, compact and
// prune. What changes a file goes by its server, if one runs; each act on keys, Mechas or the
// whole file is in the audit log.
package operate

import (
	"slices"

	"github.com/spf13/cobra"

	"relay/cmd/internal/cli"
)

type app struct{ *cli.App }

// Commands are those of this room.
var Commands = slices.Concat(
	cli.Commands("keys", (*app).keyCommand, (*app).mechaCommand),
	cli.Commands("operating", (*app).backupCommand, (*app).restoreCommand, (*app).pruneCommand, (*app).compactCommand),
	[]cli.Command{{Group: "keys", Under: "search", Make: func(a *cli.App) *cobra.Command {
		return (&app{a}).searchForget()
	}}})
