// Package operate is the commands that change a database or copy it: keys, Mechas and their profiles; backup
// and restore, and prune. If a server runs on the file, it makes the change for the command. The audit log has
// each change of keys, Mechas or the whole file.
package operate

import (
	"slices"

	"relay/cmd/internal/cli"
)

type app struct{ *cli.App }

// Commands are this room's commands.
var Commands = slices.Concat(
	cli.Commands("keys", (*app).keyCommand, (*app).mechaCommand),
	cli.Commands("operating", (*app).backupCommand, (*app).restoreCommand, (*app).pruneCommand))
