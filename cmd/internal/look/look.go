// Package look is the commands that read a database, with or without a server on it:
// messages, traces, why there is no answer, counts, and the audit log. They write
// nothing, and wait for nobody.
package look

import (
	"slices"

	"relay/cmd/internal/cli"
)

type app struct{ *cli.App }

// Commands are those of this room.
var Commands = slices.Concat(
	cli.Commands("look", (*app).messageCommand, (*app).whyCommand, (*app).statsCommand),
	cli.Commands("operating", (*app).auditCommand))
