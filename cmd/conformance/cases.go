package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"relay/db/relay"
)

// A Case is one way in which a relay, or the network before it, misbehaves.
type Case struct {
	Name string
	Role string // Asker or Worker: only this role is judged. "": both
	Does string // what the relay does
	Must string // what the author of a client must see to

	questions int
	strangers bool     // see work
	silent    bool     // the kit's own worker answers nothing
	oneByOne  bool     // the kit's own asker waits for each answer
	ends      bool     // the program exits on its own; no message need be answered
	flags     []string // of relay serve
	faults    func(*trial) faults
	run       func(context.Context, *trial) error
}

// cases is filled by init, because the functions of cases refer to it.
var cases []Case

func init() {
	cases = []Case{
		{Name: "plain", Does: "nothing wrong", questions: 20, run: converse,
			Must: "Answer each question once, in its conversation and with in_reply_to; acknowledge it as completed, " +
				"once the answer is accepted; put no key and no payload on stderr."},
		{Name: "signatures", Does: "refuses requests without a signature", questions: 5,
			flags: []string{"--require-message-signature"}, run: converse,
			Must: "Sign every request and handshake, over the bytes as sent."},
		{Name: "lost-answer", Does: "drops the connection between the commit of a message or an ack and the answer",
			questions: 6, faults: lostAnswer, run: converse,
			Must: "Give every send an Idempotency-Key, and repeat it with that key and the same body until there is an answer."},
		{Name: "lost-ack", Role: Worker, Does: "drops the connection before an ack arrives", questions: 6,
			faults: lostAck, run: converse, Must: "Repeat an ack that may be lost, at the latest when the message is " +
				"redelivered; do not answer that message again."},
		{Name: "retry-after", Does: "answers 429 and 503 with Retry-After, handshakes and polls too", questions: 3,
			faults: retryAfter, run: converse,
			Must: "After a 429 or 503, repeat the request once Retry-After is over."},
		{Name: "restart", Does: "is killed twice (kill -9), and is away for a while", questions: 20, run: restarts,
			Must: "Reconnect with growing pauses, and repeat each request without an answer."},
		{Name: "cut", Does: "cuts sockets in the middle of a frame, and polls in the middle of the answer", questions: 12,
			faults: cut, run: converse, Must: "Drop incomplete frames and responses, reconnect, and miss no message."},
		{Name: "duplicates", Does: "cuts sockets and pushes messages twice; a poll gets the same page twice",
			questions: 10, faults: duplicates, run: converse,
			Must: "Recognise a message by its message_id, and handle it once: no second answer, no second line."},
		{Name: "slow", Does: "takes seconds for an answer, and sends bytes in small pieces", questions: 3,
			faults: slow, run: converse,
			Must: "Wait at least 10 seconds for an answer, and read frames and bodies that come in pieces."},
		{Name: "order", Role: Asker, Does: "has a worker that answers late and in another order, " +
			"and a stranger who answers first", questions: 5, strangers: true, run: converse,
			Must: "Take as the answer only the message whose in_reply_to is the question."},
		{Name: "killed", Role: Worker, Does: "lets the worker be killed (kill -9) while it sends an answer, " +
			"and started again", questions: 3, oneByOne: true, run: kills,
			Must: "Acknowledge a message only when it has been handled: unfinished messages are redelivered after a crash."},
		{Name: "refused", Role: Asker, Does: "knows no such recipient", questions: 1, ends: true, run: unknownRecipient,
			Must: "Do not repeat what is refused for good (4xx other than 429); exit with 1, and put the code on stderr."},
		{Name: "revoked-asker", Role: Asker, Does: "revokes the key while the asker waits", questions: 2, silent: true,
			ends: true, run: revokedAsker, Must: "When the key is refused (401, close code 1008), " +
				"exit with 1, and put the code key_revoked on stderr."},
		{Name: "revoked-worker", Role: Worker, Does: "revokes the key while the worker listens", questions: 2, ends: true,
			run: revokedWorker, Must: "When the key is refused (401, close code 1008), " +
				"exit with 1, and put the code key_revoked on stderr."},
	}
}

// converse lets the asker ask all its questions, and ends the worker when all is done.
func converse(ctx context.Context, t *trial) error {
	worker, err := t.startWorker(ctx)
	if err != nil {
		return err
	}
	asker, done, err := t.startAsker(ctx, t.worker.address)
	if err != nil {
		return err
	}
	return t.finish(ctx, worker, asker, done)
}

const (
	endTime  = 10 * time.Second       // a worker must end within it
	settling = 500 * time.Millisecond // what comes twice has been handled then
)

// finish waits for the asker, and for the acknowledgement of all questions. Then it ends
// the worker.
func (t *trial) finish(ctx context.Context, worker, asker *program, done chan error) error {
	var err error
	if asker != nil {
		select {
		case <-asker.ended:
			t.checkExit(asker)
		case <-ctx.Done():
			t.failf("the asker did not end within %v", t.config.Timeout)
			t.checkAlive(worker)
			return nil
		}
	} else if err = <-done; errors.Is(err, context.DeadlineExceeded) {
		t.failf("the worker has not answered all questions within %v", t.config.Timeout)
		t.checkAlive(worker)
		return nil
	} else if err != nil {
		return fmt.Errorf("the kit's own asker: %w", err)
	}
	if worker == nil {
		return nil
	}
	if err := t.untilAcknowledged(ctx); err != nil {
		return err
	}
	wait(ctx, settling)
	if t.checkAlive(worker) && worker.terminate() && !worker.within(context.WithoutCancel(ctx), endTime) {
		t.failf("the worker did not end within %v of a SIGTERM", endTime)
	}
	return nil
}

// judgeAlive wants a worker that has not ended; nil is the kit's own.
func (t *trial) checkAlive(worker *program) bool {
	if worker == nil || !worker.hasEnded() {
		return true
	}
	t.failf("the worker exited on its own, with exit code %d: %s", worker.code(), t.lastLine(worker))
	return false
}

// onlyNew lets a fault hit the first few requests with each subject.
func onlyNew(e *exchange, times int) bool { return e.before < times }

func lostAnswer(*trial) faults {
	var cuts limiter
	return faults{
		request: func(e *exchange) fate {
			if e.isSend() && onlyNew(e, 2) || e.isAck() && onlyNew(e, 1) {
				return fate{after: true, begun: e.before > 0}
			}
			return fate{}
		},
		push: func(s *socket, f *frame) frameFate {
			if f.Type == "sent" && cuts.take(s.key, 3) {
				return dropFrame
			}
			return passFrame
		},
	}
}

func isFinal(f *frame) bool {
	return f.Type == "ack" && f.Status != "processing" && f.Status != "received"
}

func lostAck(*trial) faults {
	var cuts limiter
	return faults{
		request: func(e *exchange) fate { return fate{before: onlyNew(e, 1) && e.isAck()} },
		frame: func(s *socket, f *frame) frameFate {
			if isFinal(f) && cuts.take(s.key, 3) {
				return dropFrame
			}
			return passFrame
		},
	}
}

func retryAfter(*trial) faults {
	return faults{request: func(e *exchange) fate {
		switch {
		case e.isSend() && e.before == 0:
			return fate{status: http.StatusTooManyRequests, retryAfter: 2 * time.Second}
		case onlyNew(e, 1), e.isSend() && e.before == 1:
			return fate{status: http.StatusServiceUnavailable, retryAfter: time.Second}
		}
		return fate{}
	}}
}

// restarts is converse with a relay that is killed.
func restarts(ctx context.Context, t *trial) error {
	watched, cancel := context.WithCancel(ctx)
	var killed sync.WaitGroup
	var failed error
	killed.Go(func() {
		for _, n := range []int{t.questions / 4, t.questions / 2} {
			if t.accepted.reach(watched, n) != nil {
				return
			}
			if failed = t.crash(ctx); failed != nil {
				return
			}
		}
	})
	err := converse(ctx, t)
	cancel()
	killed.Wait()
	if ctx.Err() != nil {
		failed = nil // the time was up
	}
	return errors.Join(err, failed)
}

func cut(*trial) faults {
	var pages limiter
	return faults{
		request: func(e *exchange) fate { return fate{half: e.isHistory() && pages.take(e.key, 3)} },
		push: func(s *socket, f *frame) frameFate {
			if f.Type == "message" && s.number <= 4 && s.pushed == s.number {
				return halfFrame
			}
			return passFrame
		},
	}
}

func duplicates(*trial) faults {
	return faults{again: true, push: func(s *socket, f *frame) frameFate {
		if f.Type == "message" && s.number < repeatedSockets && s.pushed == 3 {
			return lastFrame
		}
		return passFrame
	}}
}

func slow(t *trial) faults {
	delay := cmp.Or(t.config.Delay, 3*time.Second)
	return faults{slow: true, request: func(e *exchange) fate {
		if e.isSend() || e.isAck() {
			return fate{delay: delay}
		}
		return fate{}
	}}
}

// kills kills the worker while it sends its second answer, and starts another one.
func kills(ctx context.Context, t *trial) error {
	reached, killed := make(chan struct{}), make(chan struct{})
	var once sync.Once
	var answers limiter
	second := func(key string) bool {
		if answers.take(key, 1) || !answers.take(key, 2) {
			return false
		}
		once.Do(func() { close(reached) })
		return true
	}
	t.front.set(faults{
		request: func(e *exchange) fate {
			if e.isSend() && second(e.key) {
				return fate{hold: killed}
			}
			return fate{}
		},
		frame: func(s *socket, f *frame) frameFate {
			if f.Type == "send" && second(s.key) {
				return dropFrame
			}
			return passFrame
		},
	})
	worker, err := t.startWorker(ctx)
	if err != nil {
		return err
	}
	asker, done, err := t.startAsker(ctx, t.worker.address)
	if err != nil {
		return err
	}
	select {
	case <-reached:
	case <-ctx.Done():
		t.failf("the worker has not sent its second answer within %v", t.config.Timeout)
		t.checkAlive(worker)
		return nil
	}
	wait(ctx, settling) // a worker that acknowledges too early does it now
	worker.kill()
	close(killed)
	if worker, err = t.startWorker(ctx); err != nil {
		return err
	}
	return t.finish(ctx, worker, asker, done)
}

func unknownRecipient(ctx context.Context, t *trial) error {
	asker, _, err := t.startAsker(ctx, "nobody^"+crew)
	if err != nil {
		return err
	}
	t.checkEnd(ctx, asker, relay.RecipientNotFound)
	sends := 0
	for _, e := range t.front.seen() {
		if e.isSend() {
			sends++
		}
	}
	if sends > 1 {
		t.failf("the message was refused with 404, and sent %d times", sends)
	}
	return nil
}

func revokedAsker(ctx context.Context, t *trial) error {
	asker, _, err := t.startAsker(ctx, t.worker.address)
	if err != nil {
		return err
	}
	if err := t.accepted.reach(ctx, 1); err != nil {
		t.failf("the asker has not sent its first question within %v", t.config.Timeout)
		return nil
	}
	wait(ctx, settling) // it waits for the answer now
	if err := t.revoke(t.asker); err != nil {
		return err
	}
	t.checkEnd(ctx, asker, relay.KeyRevoked)
	return nil
}

func revokedWorker(ctx context.Context, t *trial) error {
	worker, err := t.startWorker(ctx)
	if err != nil {
		return err
	}
	_, done, err := t.startAsker(ctx, t.worker.address)
	if err != nil {
		return err
	}
	if err := <-done; err != nil {
		t.failf("the worker has not answered all questions within %v", t.config.Timeout)
		return nil
	}
	wait(ctx, settling)
	if err := t.revoke(t.worker); err != nil {
		return err
	}
	t.checkEnd(ctx, worker, relay.KeyRevoked)
	return nil
}

// A limiter counts for each key. The zero value is ready. It is safe for concurrent use.
type limiter struct {
	mu   sync.Mutex
	used map[string]int
}

// take counts one, unless there are so many already.
func (l *limiter) take(key string, limit int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.used == nil {
		l.used = map[string]int{}
	}
	if l.used[key] >= limit {
		return false
	}
	l.used[key]++
	return true
}
