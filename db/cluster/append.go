//go:build cluster

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// appendWait is how long one call of Append waits for the log. The store calls again soon,
// because the leader may have gone in the meantime.
const appendWait = 2 * time.Second

// Append implements replication.Log. It returns nil once a majority of the copies of the
// stream have synced the envelope.
func (n *Node) Append(ctx context.Context, id string, envelope []byte) error {
	if err := n.ready(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, appendWait)
	defer cancel()
	m := &nats.Msg{Subject: inSubject, Data: envelope,
		Header: nats.Header{server.JSMsgId: []string{id}, server.JSExpectedStream: []string{streamName}}}
	answer, err := n.nats.conn.RequestMsgWithContext(ctx, m)
	if err != nil {
		return err
	}
	var ack server.JSPubAckResponse
	switch err := json.Unmarshal(answer.Data, &ack); {
	case err != nil:
		return fmt.Errorf("the log gave an answer that cannot be read: %w", err)
	case ack.Error != nil:
		return ack.Error
	case ack.PubAck == nil || ack.Sequence == 0:
		return errors.New("the log did not say where the envelope is")
	}
	n.know(ack.Sequence)
	return nil
}

// know notes that the log has the entry of a number. If Follow has not delivered it, Follow
// looks for it.
func (n *Node) know(number uint64) {
	for {
		known := n.known.Load()
		if number <= known {
			return
		}
		if n.known.CompareAndSwap(known, number) {
			break
		}
	}
	select {
	case n.grown <- struct{}{}:
	default:
	}
}
