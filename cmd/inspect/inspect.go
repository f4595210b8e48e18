// Package inspect has the commands that read a database, with or without a server on it: messages, traces, why
// there is no answer, counts, and the audit log. They write nothing and wait for no lock. Package browse has
// their queries.
package inspect

import (
	"slices"

	"relay/cmd/internal/cli"
	"relay/db/look"
	"relay/db/look/browse"
	"relay/http/docs"
)

func init() {
	cli.Register(cli.Ring{Name: "inspect", Commands: slices.Concat(
		cli.Commands("look", (*app).messageCommand, (*app).whyCommand, (*app).statsCommand),
		cli.Commands("operating", (*app).auditCommand))})
	docs.Register(docs.Ring{Name: "inspect"}) // other pages describe it
}

type app struct{ *cli.App }

// read opens the database for one command.
func (a *app) read(f func(browse.Inspector) error) error {
	return a.WithInspector(func(in *look.Inspector) error { return f(browse.Inspector{Inspector: in}) })
}
