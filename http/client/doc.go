// Package client is an agent's side of a relay: it sends messages, asks and waits for
// answers, listens and answers, as one Mecha. The environment says where, and as whom:
// RELAY_URL and RELAY_KEY, as for the commands (relay key create ADDRESS issues a key).
//
//	c, err := client.FromEnv()
//	if err != nil {
//		return err
//	}
//	err = c.Listen(ctx, client.ListenOptions{}, func(ctx context.Context, m *client.Message) error {
//		return m.Reply(ctx, quote(m.Payload)) // nil: the message is completed; an error: failed, with its text
//	})
//
// And on the other side:
//
//	answer, err := c.Ask(ctx, "flights^acme", map[string]string{"to": "LIS"})
//
// # What holds
//
// A message that [Client.Send] has sent is on the relay's disk. Every send has an Idempotency-Key
// and is tried again while the relay is away or overloaded, so it is sent once. [Client.Ask] keeps
// waiting during a restart of the relay.
//
// [Client.Listen] calls its handler for each message at least once. It outlives restarts of the relay, lost
// connections, and a machine that sleeps; where no WebSocket can be had it asks the history. It recognises a
// redelivered message that it has already handled. After a crash of this process, unacknowledged messages are
// redelivered; [Message.Reply] still sends the same answer once, because its Idempotency-Key is made of the
// message's id and of the answer. A different answer is sent as a further one. Other effects of a handler must
// bear to be repeated: [Message.ID] is there to know them by.
//
// # Errors
//
//   - A [*Refusal] has the code of a relay's refusal, the addresses that were perhaps meant, and
//     for how long to wait. [Refused], or errors.Is with [ErrRecipientNotFound] and its like,
//     tells them apart.
//   - An [*Unreachable] says that no answer came. A [*Closed] says how the relay closed a
//     WebSocket. A [*WrongScheme] says that a URL should begin with https://, or http://.
//   - A [*SendError] says whether a message may have been sent anyway, a [*NoAnswer] why
//     there is no answer, a [*Failed] what became of the question.
//   - A [*ConfigError] is a mistake in a Config or ListenOptions.
//
// # One request, one socket
//
// [Client.Do] and [Client.Call] make one signed request to any path of the API;
// [Client.Dial] opens a WebSocket, from which [Socket.Next] reads frames. [Temporary]
// reports whether to try again after an error, [Backoff] and [Sleep] when, and [NothingDone]
// whether the failed request may have had an effect.
package client
