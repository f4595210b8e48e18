package cmd

import (
	"context"
	"encoding/json"
	"fmt"
	nethttp "net/http"
	"net/url"
	"regexp"
	"time"

	"relay/db/relay"

	"github.com/spf13/cobra"
)

// ackStatus is a status as PROTOCOL §3 has it.
var ackStatus = regexp.MustCompile(`^(?i)[a-z][a-z0-9_]{0,31}$`)

// ack acknowledges a message. To do it again does no harm.
func (c *client) ack(ctx context.Context, id, status, detail string, out any) error {
	in := map[string]string{"status": status, "client_ts": relay.FormatTime(time.Now())}
	if detail != "" {
		in["detail"] = detail
	}
	if out == nil {
		out = &struct{}{}
	}
	return c.call(ctx, "POST", "/api/v1/messages/"+url.PathEscape(id)+"/ack", in, out)
}

// unauthorised tells whether a refusal is about the key, whatever is asked.
func unauthorised(r *refusal) bool { return r.status == nethttp.StatusUnauthorized }

func (a *app) ackCommand() *cobra.Command {
	var c credentials
	var detail string
	cmd := &cobra.Command{
		Use:   "ack ID [STATUS]",
		Short: "Acknowledge a message",
		Long: `Acknowledge a message that was sent to the Mecha of RELAY_KEY, as completed or
with another status. completed, failed and rejected are final; received and
processing say how far it is, and leave it pending. The same again does no harm.`,
		Example: `  relay ack msg_0t3z1hj9e001xzqx8pz68qj0y4
  relay ack msg_0t3z1hj9e001xzqx8pz68qj0y4 failed --detail 'no seats left'`,
		Args: between(1, 2, "a message id and at most one status"),
		RunE: func(cmd *cobra.Command, args []string) error {
			status := append(args, "completed")[1]
			if !ackStatus.MatchString(status) {
				return usagef("%q is no status such as completed or failed: at most 32 letters, digits and _", status)
			}
			client, err := c.client()
			if err != nil {
				return err
			}
			var out json.RawMessage
			if err := client.ack(cmd.Context(), args[0], status, detail, &out); err != nil {
				return advice(err)
			}
			return a.printChange(out)
		},
	}
	c.flags(cmd)
	cmd.Flags().StringVar(&detail, "detail", "", "`why`, for the sender")
	return cmd
}

func (a *app) deliverCommand() *cobra.Command {
	var c credentials
	cmd := &cobra.Command{
		Use:   "deliver ID",
		Short: "Mark a message as delivered",
		Long: `Tell the sender that a message has reached the Mecha of RELAY_KEY. It stays
pending until it is acknowledged. The same again does no harm.`,
		Example: "  relay deliver msg_0t3z1hj9e001xzqx8pz68qj0y4",
		Args:    exactly(1, "one message id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := c.client()
			if err != nil {
				return err
			}
			var out json.RawMessage
			if err := client.call(cmd.Context(), "POST", "/api/v1/messages/"+url.PathEscape(args[0])+"/deliver", nil, &out); err != nil {
				return advice(err)
			}
			return a.printChange(out)
		},
	}
	c.flags(cmd)
	return cmd
}

// printChange prints the answer to an ack or a deliver.
func (a *app) printChange(answer []byte) error {
	if a.json {
		_, err := fmt.Fprintf(a.stdout, "%s\n", answer)
		return err
	}
	var out struct {
		MessageID     string `json:"message_id"`
		State, Status string
		Duplicate     bool
	}
	if err := json.Unmarshal(answer, &out); err != nil {
		return err
	}
	if out.Duplicate {
		fmt.Fprintln(a.stderr, "it was so before")
	}
	line := out.MessageID + "  " + out.State
	if out.Status != "" {
		line += "  " + out.Status
	}
	_, err := fmt.Fprintln(a.stdout, line)
	return err
}
