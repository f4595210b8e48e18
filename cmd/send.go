package cmd

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	nethttp "net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"relay/db/relay"
	"relay/http/client"
)

// outgoing is a message to send, as the API takes it; the payload is added as
// the bytes that it is.
type outgoing struct {
	To             string `json:"to"`
	Type           string `json:"message_type,omitempty"`
	Priority       string `json:"priority,omitempty"`
	ConversationID string `json:"conversation_id,omitempty"`
	CorrelationID  string `json:"correlation_id,omitempty"`
	TTL            int64  `json:"ttl_seconds,omitempty"`

	payload     []byte
	idempotency string
}

// sendFlags are the flags of relay send that are not fields of the message.
type sendFlags struct {
	retry, waitAck, waitReply, ttl time.Duration
	noAck                          bool
}

func (a *app) sendCommand() *cobra.Command {
	var c clientFlags
	var m outgoing
	var f sendFlags
	cmd := &cobra.Command{
		Use:   "send TO [PAYLOAD|-|@FILE]",
		Short: "Send a message, and wait for its ack or its answer if you like",
		Long: `Send a message as the Mecha of RELAY_KEY, and print the message's id. The
payload is a JSON object: an argument, a file (@FILE), or stdin (- or nothing).
It is sent byte for byte. To write to all Mechas of a crew, give *^CREW; each
gets a message of its own, and all ids are printed.

If the relay does not answer or is overloaded, send tries again for --retry. The
message is sent once all the same: every attempt has the same Idempotency-Key.

--wait-ack waits for the final ack. The exit code is 0 for completed, and 1 for
failed, rejected, expired, or no final ack in time. With --json, a second line
has the message's record.
--wait-reply waits for the answer, prints its payload (with --json the whole
envelope) and acknowledges it. The answer is the first message from TO in the
same conversation with the same correlation_id. In a conversation that this
message begins, a message without correlation_id is an answer too. Without
--correlation-id, the Idempotency-Key is the correlation_id. If the message
fails, the exit code is 1.
The same command with the same --idempotency-key waits again.`,
		Example: `  relay send bob^demo '{"text":"hello, bob"}'
  relay send '*^demo' '{"text":"we are back"}'
  relay send bob^demo @order.json --idempotency-key order-17 --wait-ack 30s
  answer=$(echo '{"question":"how are you?"}' | relay send bob^demo --wait-reply 60s)`,
		Args: between(1, 2, "an address and at most one payload"),
		RunE: func(cmd *cobra.Command, args []string) error {
			relay, err := c.client()
			if err == nil {
				err = a.prepare(&m, &f, args)
			}
			if err != nil {
				return err
			}
			return a.send(cmd.Context(), relay, &m, f)
		},
	}
	c.add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&m.Type, "type", "", "the message's `type` (default message)")
	flags.StringVar(&m.Priority, "priority", "", "the `priority`: low, normal, high, urgent, or a word of your own (default normal)")
	flags.StringVar(&m.ConversationID, "conversation", "", "the conversation's `id`, or a word of your own (default a new one)")
	flags.StringVar(&m.CorrelationID, "correlation-id", "", "a `text` that goes with the message")
	flags.StringVar(&m.idempotency, "idempotency-key", "", "a `text`; for 24 hours, the same message with the same text is sent only once")
	flags.DurationVar(&f.ttl, "ttl", 0, "the message expires after this time")
	flags.DurationVar(&f.retry, "retry", 10*time.Second, "how long to try again if the relay does not answer")
	flags.DurationVar(&f.waitAck, "wait-ack", 0, "how long to wait for the final ack")
	flags.DurationVar(&f.waitReply, "wait-reply", 0, "how long to wait for the answer, which is then printed")
	flags.BoolVar(&f.noAck, "no-ack", false, "with --wait-reply: do not acknowledge the answer")
	return cmd
}

// prepare checks what was typed, and completes the message.
func (a *app) prepare(m *outgoing, f *sendFlags, args []string) error {
	to, err := relay.ParseRecipient(args[0])
	switch {
	case err != nil:
		return plain(err)
	case f.retry < 0 || f.waitAck < 0 || f.waitReply < 0 || f.ttl < 0:
		return usagef("--retry, --wait-ack, --wait-reply and --ttl must not be negative")
	case f.waitAck > 0 && f.waitReply > 0:
		return usagef("--wait-ack or --wait-reply, not both: an answer says more than an ack")
	case to.IsCrew() && (f.waitAck > 0 || f.waitReply > 0):
		return usagef("--wait-ack and --wait-reply wait for one recipient, and %s is a crew", to)
	case f.noAck && f.waitReply == 0:
		return usagef("--no-ack goes with --wait-reply")
	case f.ttl%time.Second != 0:
		return usagef("--ttl takes whole seconds, as in 90s or 24h")
	}
	m.To, m.TTL = string(to), int64(f.ttl/time.Second)
	if m.idempotency == "" {
		m.idempotency = rand.Text()
	}
	if f.waitReply > 0 && m.CorrelationID == "" {
		m.CorrelationID = m.idempotency // the same command, run again, must send the same bytes
	}
	if len(args) == 1 {
		if stdin, ok := a.stdin.(*os.File); ok && isTerminal(stdin) {
			return usagef("no payload: give it as an argument, as @FILE or on stdin, as in relay send %s '{\"text\":\"hello\"}'", to)
		}
		args = append(args, "-")
	}
	m.payload, err = a.bodyArgument(args[1:])
	if err != nil {
		return err
	}
	m.payload = bytes.TrimSpace(m.payload)
	if err = checkPayload(m.payload); err != nil {
		if _, e := os.Stat(args[1]); e == nil {
			return usagef("%w; to send the file of that name, write @%s", err, args[1])
		}
	}
	return err
}

// checkPayload refuses what the relay would refuse, but sooner and more plainly.
func checkPayload(payload []byte) error {
	var syntax *json.SyntaxError
	err := json.Unmarshal(payload, &struct{}{})
	switch {
	case len(payload) == 0:
		return usagef(`the payload is empty; it must be a JSON object, as in {"text":"hello"}`)
	case errors.As(err, &syntax):
		return usagef("the payload is not valid JSON: %v, at byte %d", err, syntax.Offset)
	case payload[0] != '{':
		return usagef(`the payload must be a JSON object, as in {"text":"hello"}`)
	}
	return nil
}

func (a *app) send(ctx context.Context, c *client.Client, m *outgoing, f sendFlags) error {
	sent, body, err := sendMessage(ctx, c, m, f.retry)
	if err != nil {
		return err
	}
	switch {
	case f.waitReply > 0:
		fmt.Fprintln(a.stderr, "sent", sent.MessageID)
		return a.waitForReply(ctx, c, m, sent, f)
	case a.json:
		err = a.printJSON(json.RawMessage(body))
	default:
		ids := sent.MessageIDs
		if ids == nil {
			ids = []string{sent.MessageID}
		}
		_, err = fmt.Fprintln(a.stdout, strings.Join(ids, "\n"))
	}
	if err != nil || f.waitAck == 0 {
		return err
	}
	return a.waitForAck(ctx, c, sent, f.waitAck)
}

// sentMessage is what a 201 says of the message that was sent.
type sentMessage struct {
	MessageID      string   `json:"message_id"`
	MessageIDs     []string `json:"message_ids"` // of a message to a crew
	ConversationID string   `json:"conversation_id"`
}

// sendMessage sends a message once, with as many attempts as it takes, for no
// longer than retry. answer is the body of the 201.
func sendMessage(ctx context.Context, c *client.Client, m *outgoing, retry time.Duration) (sent sentMessage, answer []byte, err error) {
	end, b, unknown := time.Now().Add(retry), client.Backoff{Most: 2 * time.Second}, false
	for {
		answer, err = sendOnce(ctx, c, m)
		if err == nil {
			return sent, answer, json.Unmarshal(answer, &sent)
		}
		unknown = unknown || !client.NothingDone(err)
		d := b.Pause(err)
		if ctx.Err() != nil || !client.Temporary(err) || time.Now().Add(d).After(end) || !sleep(ctx, d) {
			break
		}
	}
	if unknown {
		err = fmt.Errorf("%w\nWhether the message was sent is not known. The same command with --idempotency-key '%s' sends it now, or finds that it was sent", advice(err), m.idempotency)
	}
	return sent, nil, err
}

const attemptTimeout = 30 * time.Second

// sendOnce makes one attempt. It returns the body of the 201.
func sendOnce(ctx context.Context, c *client.Client, m *outgoing) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	body, err := withPayload(m, m.payload, "")
	if err != nil {
		return nil, err
	}
	resp, err := c.Do(ctx, "POST", "/api/v1/messages", body, nethttp.Header{"Idempotency-Key": {m.idempotency}})
	if err != nil {
		return nil, err
	}
	return resp.Body, resp.Err()
}
