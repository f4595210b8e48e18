package agent

import (
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"relay/cmd/internal/cli"
	"relay/cmd/internal/remote"
	"relay/db/relay"
)

// ackStatus is the form of a status (PROTOCOL §3).
var ackStatus = regexp.MustCompile(`^(?i)[a-z][a-z0-9_]{0,31}$`)

func (a *app) ackCommand() *cobra.Command {
	var c remote.Flags
	var detail, detailFile string
	cmd := &cobra.Command{
		Use:   "ack ID [STATUS]",
		Short: "Acknowledge a message",
		Long: `Acknowledge a message that was sent to the Mecha of RELAY_KEY, as completed or
with another status. completed, failed and rejected are final. received and
processing report progress, and the message stays pending. Repeating an ack is
harmless.`,
		Example: `  relay ack msg_0t3z1hj9e001xzqx8pz68qj0y4
  relay ack msg_0t3z1hj9e001xzqx8pz68qj0y4 failed --detail 'no seats left'`,
		Args: cli.Between(1, 2, "a message id and at most one status"),
		RunE: func(cmd *cobra.Command, args []string) error {
			status := append(args, "completed")[1]
			if !ackStatus.MatchString(status) {
				return cli.Usagef("%q is not a valid status: at most 32 letters, digits and _, such as completed or failed", status)
			}
			if detail != "" && detailFile != "" {
				return cli.Usagef("--detail cannot be combined with --detail-file")
			}
			api, err := c.Client()
			if err != nil {
				return err
			}
			if detailFile != "" {
				text, err := a.Input([]string{detailFile})
				if err != nil {
					return err
				}
				detail = strings.TrimSuffix(string(text), "\n")
			}
			out, err := api.Ack(cmd.Context(), args[0], status, detail)
			if err != nil {
				return err
			}
			return a.printChange(out.JSON)
		},
	}
	c.Add(cmd)
	cmd.Flags().StringVar(&detail, "detail", "", "a `text` for the sender, such as the reason")
	cmd.Flags().StringVar(&detailFile, "detail-file", "", "a `file` with the detail; - is stdin")
	return cmd
}

func (a *app) deliverCommand() *cobra.Command {
	var c remote.Flags
	cmd := &cobra.Command{
		Use:   "deliver ID",
		Short: "Mark a message as delivered",
		Long: `Tell the sender that a message has reached the Mecha of RELAY_KEY. The message
stays pending until it is acknowledged. Repeating this is harmless.`,
		Example: "  relay deliver msg_0t3z1hj9e001xzqx8pz68qj0y4",
		Args:    cli.Exactly(1, "one message id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := c.Client()
			if err != nil {
				return err
			}
			var out json.RawMessage
			if err := api.Call(cmd.Context(), "POST", "/api/v1/messages/"+url.PathEscape(args[0])+"/deliver",
				nil, &out); err != nil {
				return err
			}
			return a.printChange(out)
		},
	}
	c.Add(cmd)
	return cmd
}

// printChange prints the relay's answer to an ack or a deliver.
func (a *app) printChange(answer []byte) error {
	if a.JSON {
		_, err := fmt.Fprintf(a.Stdout, "%s\n", answer)
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
		fmt.Fprintln(a.Stderr, "nothing has changed: the message already had this status")
	}
	line := out.MessageID + "  " + out.State
	if out.Status != "" {
		line += "  " + out.Status
	}
	_, err := fmt.Fprintln(a.Stdout, relay.Visible(line))
	return err
}
