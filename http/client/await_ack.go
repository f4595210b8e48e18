package client

import (
	"context"
	"time"
)

// A sender learns of an acknowledgement by asking for the message's record. A socket only triggers the
// requests. Nothing is missed while the socket is lost or the relay is away: the next request finds it.

const askAgain = 2 * time.Second // without a word from the socket

// AwaitAck waits until the message is acknowledged as completed, for at most so long. It returns
// the latest record that it has read, even with an error, or nil. The error is a *Failed if the
// message has failed, is rejected or has expired; context.DeadlineExceeded if the time is up; the
// error of ctx if that has ended.
func (s *Sent) AwaitAck(ctx context.Context, limit time.Duration) (last *Message, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	wake := make(chan struct{}, 1)
	watched := make(chan struct{}) // closed when watch has returned
	go func() { defer close(watched); s.watch(ctx, wake) }()
	defer func() { cancel(); <-watched }()
	for {
		record, err := s.out.c.Record(ctx, s.MessageID)
		if err == nil {
			last, err = record, record.failed()
			if err != nil || record.Status == "completed" {
				return last, err
			}
		}
		switch {
		case ctx.Err() != nil:
			return last, ctx.Err()
		case err != nil && !Temporary(err):
			return last, err
		}
		again := time.NewTimer(askAgain)
		select {
		case <-wake:
		case <-again.C:
		case <-ctx.Done():
		}
		again.Stop()
	}
}

// watch sends to wake whenever something happens to the message or in its conversation,
// and when a socket has been opened: something may have happened before.
func (s *Sent) watch(ctx context.Context, wake chan<- struct{}) {
	b := Backoff{Most: sendPause}
	for ctx.Err() == nil {
		err := s.watchSocket(ctx, func() {
			b.Reset()
			select {
			case wake <- struct{}{}:
			default: // one is waiting
			}
		})
		Sleep(ctx, b.Pause(err))
	}
}

// watchSocket watches by one socket until that is lost.
func (s *Sent) watchSocket(ctx context.Context, wake func()) error {
	own, err := s.out.c.Address(ctx)
	if err != nil {
		return err
	}
	socket, err := s.out.c.Dial(ctx, own, "sync_limit=0&events=receipts")
	if err != nil {
		return err
	}
	defer socket.Close()
	wake()
	for {
		var f frame
		if err := socket.Receive(&f); err != nil {
			return err
		}
		if f.MessageID == s.MessageID || f.ConversationID == s.ConversationID {
			wake()
		}
	}
}
