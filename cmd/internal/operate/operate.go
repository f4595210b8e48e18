// Package operate is the commands that change a database or copy it: keys, Mechas and
// their profiles; backup and restore, and prune. What changes a file goes by its server, if one
// runs; each act on keys, Mechas or the whole file is in the audit log.
package operate

import (
	"slices"

	"relay/cmd/internal/cli"
)

type app struct{ *cli.App }

// Commands are those of this room.
var Commands = slices.Concat(
	cli.Commands("keys", (*app).keyCommand, (*app).mechaCommand),
	cli.Commands("operating", (*app).backupCommand, (*app).restoreCommand, (*app).pruneCommand))
