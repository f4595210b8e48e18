// Package agent is the commands of an agent that speaks to a relay: it sends and asks,
// listens, acknowledges and replies, searches, and asks who it is. Each is one file;
// package client does the requests. Nothing here knows a database: what goes wrong is
// told by the relay.
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
	docs.Register(docs.Ring{Name: "agent"}) // other pages tell what this ring is: it has none of its own
}
