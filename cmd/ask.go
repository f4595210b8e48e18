package cmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	nethttp "net/http"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"relay/http/client"
)

const (
	firstHold   = time.Second      // of the first request that waits; each further one waits twice as long
	longestHold = 60 * time.Second // that a relay holds a request
	longestAsk  = 23 * time.Hour   // an Idempotency-Key holds for 24 hours
)

func (a *app) askCommand() *cobra.Command {
	var c clientFlags
	var m outgoing
	var f sendFlags
	cmd := &cobra.Command{
		Use:   "ask TO [PAYLOAD|-|@FILE]",
		Short: "Send a message, wait for the answer and print it",
		Long: `Send a message as the Mecha of RELAY_KEY, wait for the answer, print its payload
(with --json the whole envelope) and acknowledge it as completed. The payload is
as in relay send.

The answer is the first message from TO that names this one as the message that
it answers, as relay reply and relay listen --reply do. A message that names no
other one counts as well, if it comes in the same conversation with the same
correlation_id. In a conversation that this message begins, it may have any;
in another one, the Idempotency-Key is the correlation_id unless
--correlation-id gives one.

If there is no answer within --timeout, the exit code is 3. The message stays
with the relay, and the same command with the same --idempotency-key goes on
waiting. If the message fails, is rejected or expires, the exit code is 1.`,
		Example: `  relay ask bob^demo '{"question":"how are you?"}'
  relay ask bob^demo @order.json --timeout 10m --idempotency-key order-17
  relay ask bob^demo '{"and":"then?"}' --in-reply-to "$ID" --json`,
		Args: between(1, 2, "an address and at most one payload"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.waitReply <= 0 {
				return usagef("--timeout must be above 0")
			}
			relay, err := c.client()
			if err == nil {
				err = a.prepare(&m, &f, args)
			}
			if err != nil {
				return err
			}
			err = a.send(cmd.Context(), relay, &m, f)
			var late noReply
			if errors.As(err, &late) {
				return timeUp{err}
			}
			return err
		},
	}
	c.add(cmd)
	f.add(cmd, &m)
	addPlace(cmd, &m)
	cmd.Flags().StringVar(&m.Type, "type", "", "the message's `type` (default message)")
	cmd.Flags().DurationVar(&f.waitReply, "timeout", time.Minute, "how long to wait for the answer")
	cmd.Flags().BoolVar(&f.noAck, "no-ack", false, "do not acknowledge the answer")
	return cmd
}

// noReply says that no reply came in time.
type noReply struct{ error }

// waitForReply waits for the answer to a message, prints it and acknowledges it. Error:
// noReply.
func (a *app) waitForReply(ctx context.Context, c *client.Client, m *outgoing, sent sentMessage, f sendFlags) error {
	reply, err := awaitReply(ctx, c, m, sent, f.waitReply)
	switch {
	case errors.Is(err, context.Canceled):
		return interrupted(sent)
	case errors.Is(err, context.DeadlineExceeded):
		return noReply{fmt.Errorf("no answer to %s within %v. It may still come: see relay inbox", sent.MessageID, f.waitReply)}
	case err != nil:
		return err
	}
	line := append(reply.payload(), '\n')
	if a.json {
		if line, err = reply.line(); err != nil {
			return err
		}
	}
	if _, err := a.stdout.Write(line); err != nil || f.noAck {
		return err
	}
	if err := ack(ctx, c, reply.MessageID, "completed", "", nil); err != nil {
		fmt.Fprintf(a.stderr, "relay: the answer %s is not acknowledged: %v\n", reply.MessageID, advice(err))
	}
	return nil
}

// awaitReply waits for the reply to a message that was sent, for at most so long. It sends
// the message again with the same Idempotency-Key: that sends nothing, but the relay holds
// the request until the reply is there. Between two such requests it looks whether the
// message has failed. The first requests are short, so that an early failure is noticed early.
// Errors: context.DeadlineExceeded, context.Canceled; why the message has failed.
func awaitReply(ctx context.Context, c *client.Client, m *outgoing, sent sentMessage, most time.Duration) (*envelope, error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	b := client.Backoff{Most: waitPause}
	for hold := firstHold; ; {
		reply, held, err := holdForReply(ctx, c, m, hold)
		switch {
		case reply != nil:
			return reply, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, errCannotWait), err != nil && !client.Temporary(err):
			return nil, err
		case err != nil || !held:
			sleep(ctx, b.Pause(err))
			continue
		}
		b.Reset()
		hold = min(2*hold, longestHold)
		r, err := readRecord(ctx, c, sent.MessageID)
		if err != nil {
			continue // the next request that waits finds out what it means
		}
		if fault := r.failed(sent.MessageID); fault != nil {
			reply, _, _ := holdForReply(ctx, c, m, 0) // an answer that was sent before the failure counts
			if reply != nil {
				fault = nil
			}
			return reply, fault
		}
	}
}

var errCannotWait = errors.New("the relay, or a proxy before it, does not know Prefer: wait, by which an answer is waited for")

// holdForReply sends a message again and has the relay hold the request until the reply is
// there. held is false if the relay could not: then it is to be asked again after a pause.
func holdForReply(ctx context.Context, c *client.Client, m *outgoing, hold time.Duration) (reply *envelope, held bool, err error) {
	resp, err := post(ctx, c, m, hold+attemptTimeout, nethttp.Header{"Prefer": {"wait=" + strconv.Itoa(int(hold/time.Second))}})
	if err != nil {
		return nil, false, err
	}
	var body struct{ Reply json.RawMessage }
	if err := json.Unmarshal(resp.Body, &body); err != nil {
		return nil, false, err
	}
	if body.Reply == nil {
		return nil, false, errCannotWait
	}
	err = json.Unmarshal(body.Reply, &reply) // null leaves nil
	return reply, resp.Header.Get("Preference-Applied") != "", err
}
