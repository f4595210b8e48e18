// Package about is what the program says of itself: its version, its documentation, the
// codes of errors.
package about

import (
	"relay/cmd/internal/cli"
)

type app struct{ *cli.App }

// Commands are this room's commands.
var Commands = cli.Commands("about", (*app).docsCommand, (*app).errorsCommand, (*app).versionCommand)
