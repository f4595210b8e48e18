package agent

import (
	"context"

	"github.com/spf13/cobra"

	"relay/cmd/internal/cli"
	"relay/cmd/internal/remote"
	"relay/http/client"
)

func (a *app) replyCommand() *cobra.Command {
	var c remote.Flags
	var m outgoing
	var f sendFlags
	cmd := &cobra.Command{
		Use:   "reply ID [PAYLOAD|-|@FILE]",
		Short: "Answer a message",
		Long: `Send an answer to a message that the Mecha of RELAY_KEY has received, to its
sender, in its conversation and with its correlation_id, and print the answer's
id. The answer names the message in in_reply_to, so relay ask finds it. The
payload and --retry are as in relay send.

The message itself stays pending until relay ack ends it. The answer has the
type reply, which relay listen --reply does not answer.`,
		Example: `  relay reply msg_0t3z1hj9e001xzqx8pz68qj0y4 '{"text":"fine, and you?"}'
  ./think.sh | relay reply "$ID" && relay ack "$ID"`,
		Args: cli.Between(1, 2, "a message id and at most one payload"),
		RunE: func(cmd *cobra.Command, args []string) error {
			m.InReplyTo = args[0]
			api, err := c.Client()
			if err == nil {
				err = a.complete(&m, &f, args[1:])
			}
			if err == nil {
				err = address(cmd.Context(), api, &m)
			}
			if err != nil {
				return err
			}
			return a.send(cmd.Context(), api, &m, f)
		},
	}
	c.Add(cmd)
	f.add(cmd, &m)
	cmd.Flags().StringVar(&m.Type, "type", client.DefaultReplyType, "the answer's message `type`")
	return cmd
}

// address sends a reply to the sender of the message that it answers, with the
// correlation_id of that message.
func address(ctx context.Context, c *client.Client, m *outgoing) error {
	question, err := c.Record(ctx, m.InReplyTo)
	if err != nil {
		return err
	}
	own, err := c.Address(ctx)
	if err != nil {
		return err
	}
	if question.Sender == string(own) && question.To != string(own) {
		return cli.Usagef("%s is a message that you have sent; to follow up on it: relay send %s --in-reply-to %s",
			m.InReplyTo, question.To, m.InReplyTo)
	}
	m.To, m.CorrelationID = question.Sender, question.CorrelationID
	return nil
}
