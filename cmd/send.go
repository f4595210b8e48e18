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
	"time"

	"relay/db/relay"

	"github.com/spf13/cobra"
)

// outgoing is a message to be sent, as the API takes it but for the payload.
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

// sendOptions are the flags of relay send that are not of the message.
type sendOptions struct {
	retry, waitAck, waitReply, ttl time.Duration
	noAck                          bool
}

func (a *app) sendCommand() *cobra.Command {
	var c credentials
	var m outgoing
	var o sendOptions
	cmd := &cobra.Command{
		Use:   "send TO [PAYLOAD|-|@FILE]",
		Short: "Send a message, and wait for its ack or its answer if you like",
		Long: `Send a message as the Mecha of RELAY_KEY, and print its id. The payload is a
JSON object: an argument, a file, or stdin (- or nothing). Its bytes stay as
they are.

A relay that does not answer, or is overloaded, is asked again for --retry. The
message is sent once all the same: every attempt carries one Idempotency-Key.

--wait-ack waits for the final ack: exit code 0 for completed, 1 for failed,
rejected, expired, or none in time. With --json, the message's record as it then
is follows on a second line.
--wait-reply waits for the answer, prints its payload (with --json the whole
envelope) and acknowledges it. The answer is the first message from TO in the
same conversation with the same correlation_id, or, in a conversation that this
message begins, with none. If none is given, the correlation_id is the
Idempotency-Key. If the message fails, the exit code is 1.
The same command with the same --idempotency-key waits again.`,
		Example: `  relay send bob^demo '{"text":"hello, bob"}'
  relay send bob^demo @order.json --idempotency-key order-17 --wait-ack 30s
  answer=$(echo '{"question":"how are you?"}' | relay send bob^demo --wait-reply 60s)`,
		Args: between(1, 2, "an address and at most one payload"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := c.client()
			if err == nil {
				err = a.prepare(&m, &o, args)
			}
			if err != nil {
				return err
			}
			return a.send(cmd.Context(), client, &m, o)
		},
	}
	c.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&m.Type, "type", "", "the message's `type` (default message)")
	f.StringVar(&m.Priority, "priority", "", "`how urgent`: low, normal, high, urgent, or a word of your own (default normal)")
	f.StringVar(&m.ConversationID, "conversation", "", "the conversation's `id`, or a word of your own (default a new one)")
	f.StringVar(&m.CorrelationID, "correlation-id", "", "a `text` that goes with the message")
	f.StringVar(&m.idempotency, "idempotency-key", "", "a `text` that makes it safe to send the same again, for 24 hours")
	f.DurationVar(&o.ttl, "ttl", 0, "the message expires after so long")
	f.DurationVar(&o.retry, "retry", 10*time.Second, "try again for so long if the relay does not answer")
	f.DurationVar(&o.waitAck, "wait-ack", 0, "wait so long for the final ack")
	f.DurationVar(&o.waitReply, "wait-reply", 0, "wait so long for the answer, and print its payload")
	f.BoolVar(&o.noAck, "no-ack", false, "with --wait-reply: do not acknowledge the answer")
	return cmd
}

// prepare checks what was typed and completes the message.
func (a *app) prepare(m *outgoing, o *sendOptions, args []string) error {
	to, err := relay.ParseAddress(args[0])
	switch {
	case err != nil:
		return plain(err)
	case o.retry < 0 || o.waitAck < 0 || o.waitReply < 0 || o.ttl < 0:
		return usagef("--retry, --wait-ack, --wait-reply and --ttl must not be negative")
	case o.waitAck > 0 && o.waitReply > 0:
		return usagef("--wait-ack or --wait-reply, not both: an answer says more than an ack")
	case o.noAck && o.waitReply == 0:
		return usagef("--no-ack goes with --wait-reply")
	case o.ttl%time.Second != 0:
		return usagef("--ttl takes whole seconds, as in 90s or 24h")
	}
	m.To, m.TTL = string(to), int64(o.ttl/time.Second)
	if m.idempotency == "" {
		m.idempotency = rand.Text()
	}
	if o.waitReply > 0 && m.CorrelationID == "" {
		m.CorrelationID = m.idempotency // the same command, run again, must send the same bytes
	}
	if len(args) == 1 {
		if f, ok := a.stdin.(*os.File); ok && isTerminal(f) {
			return usagef("no payload: give it as an argument, as @FILE or on stdin, as in relay send %s '{\"text\":\"hello\"}'", to)
		}
		args = append(args, "-")
	}
	m.payload, err = a.bodyArgument(args[1:])
	if err != nil {
		return err
	}
	m.payload = bytes.TrimSpace(m.payload)
	return checkPayload(m.payload)
}

// checkPayload says early, and more plainly, what the relay would refuse.
func checkPayload(payload []byte) error {
	var syntax *json.SyntaxError
	err := json.Unmarshal(payload, &struct{}{})
	switch {
	case len(payload) == 0:
		return usagef(`the payload is empty, and must be a JSON object, as in {"text":"hello"}`)
	case errors.As(err, &syntax):
		return usagef("the payload is no JSON: %v, at byte %d", err, syntax.Offset)
	case payload[0] != '{':
		return usagef(`the payload must be a JSON object, as in {"text":"hello"}`)
	}
	return nil
}

func (a *app) send(ctx context.Context, c *client, m *outgoing, o sendOptions) error {
	sent, body, err := c.sendMessage(ctx, m, o.retry)
	if err != nil {
		return err
	}
	switch {
	case o.waitReply > 0:
		fmt.Fprintln(a.stderr, "sent", sent.MessageID)
		return a.waitForReply(ctx, c, m, sent, o)
	case a.json:
		_, err = fmt.Fprintf(a.stdout, "%s\n", body)
	default:
		_, err = fmt.Fprintln(a.stdout, sent.MessageID)
	}
	if err != nil || o.waitAck == 0 {
		return err
	}
	return a.waitForAck(ctx, c, sent, o.waitAck)
}

// sendMessage sends a message once, however often it must be tried, for as
// long as retry. It gives the body of the 201 too.
func (c *client) sendMessage(ctx context.Context, m *outgoing, retry time.Duration) (sent sentMessage, answer []byte, err error) {
	end, b, unknown := time.Now().Add(retry), backoff{most: 2 * time.Second}, false
	for {
		answer, err = c.sendOnce(ctx, m)
		if err == nil {
			return sent, answer, json.Unmarshal(answer, &sent)
		}
		unknown = unknown || !nothingDone(err)
		d := b.pause(err)
		if ctx.Err() != nil || !transient(err) || time.Now().Add(d).After(end) || !sleep(ctx, d) {
			break
		}
	}
	if unknown {
		return sent, nil, fmt.Errorf("%w\nWhether the message was sent is not known. The same command with --idempotency-key '%s' sends it now, or finds that it was sent", advice(err), m.idempotency)
	}
	return sent, nil, advice(err)
}

const attemptTimeout = 30 * time.Second

func (c *client) sendOnce(ctx context.Context, m *outgoing) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	body, err := withPayload(m, m.payload, "")
	if err != nil {
		return nil, err
	}
	resp, answer, err := c.do(ctx, "POST", "/api/v1/messages", body, nethttp.Header{"Idempotency-Key": {m.idempotency}})
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != nethttp.StatusCreated {
		return nil, problemOf(resp, answer)
	}
	return answer, nil
}
