// Package agent has the commands by which an agent speaks to a relay: to send and ask, listen, acknowledge and
// reply, search, and ask who it is. Each is one file; package client makes the requests. This package knows no
// database: the relay reports what goes wrong.
package agent

import (
	"slices"

	"relay/cmd/internal/cli"
	"relay/http/docs"
)

type app struct{ *cli.App }

func init() {
	cli.Register(cli.Ring{Name: "agent", Commands: slices.Concat(
		cli.Commands("client", (*app).sendCommand, (*app).askCommand, (*app).listenCommand, (*app).inboxCommand,
			(*app).replyCommand, (*app).ackCommand, (*app).deliverCommand, (*app).searchCommand, (*app).whoamiCommand,
			(*app).curlCommand, (*app).signCommand),
		cli.Commands("operating", (*app).readyzCommand))})
	docs.Register(docs.Ring{Name: "agent"}) // other pages describe this ring, which has no page of its own
}
