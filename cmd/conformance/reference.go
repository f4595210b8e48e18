package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"relay/db/relay"
	"relay/http/client"
)

// The kit's own asker and worker: plain ones, that poll. They take the part that the
// program does not have, over a proxy without faults, and outlive restarts of the relay.

// A party is one of them.
type party struct {
	client *client.Client
	mecha
}

func (t *trial) party(m mecha) (*party, error) {
	c, err := client.New(client.Config{URL: t.quiet.url, Key: m.key})
	return &party{c, m}, err
}

// call sends a request until it is answered for good, or the context ends. A write has an
// Idempotency-Key, and is sent again with it.
func (p *party) call(ctx context.Context, method, path, key string, in, out any) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return err
		}
	}
	header := http.Header{}
	if key != "" {
		header.Set("Idempotency-Key", key)
	}
	backoff := client.Backoff{Most: time.Second}
	for {
		resp, err := p.client.Do(ctx, method, path, body, header)
		if err == nil {
			err = resp.Err()
		}
		if err == nil {
			if out == nil {
				return nil
			}
			return json.Unmarshal(resp.Body, out)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !client.Temporary(err) {
			return err
		}
		if !wait(ctx, backoff.Pause(err)) {
			return ctx.Err()
		}
	}
}

// wait waits, and returns false if the context ended first.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// An item is a message that a party has received.
type item struct {
	ID        string `json:"message_id"`
	From      relay.Address
	InReplyTo string `json:"in_reply_to"`
	Payload   struct{ N, Echo *int }
}

// pending returns the messages that are pending. If no message is pending, it waits a few seconds for one.
func (p *party) pending(ctx context.Context, seconds int) ([]item, error) {
	var page struct{ Messages []item }
	err := p.call(ctx, "GET",
		fmt.Sprintf("/api/v1/mecha/%s/messages?direction=in&state=pending&include=payload&limit=1000&wait=%d",
			p.address, seconds), "", nil, &page)
	return page.Messages, err
}

func (p *party) ack(ctx context.Context, id string) error {
	body := map[string]string{"status": "completed", "client_ts": time.Now().UTC().Format(time.RFC3339)}
	return p.call(ctx, "POST", messagesPath+"/"+id+"/ack", "", body, nil)
}

func (p *party) send(ctx context.Context, key string, message map[string]any) (id string, err error) {
	var sent struct {
		ID string `json:"message_id"`
	}
	err = p.call(ctx, "POST", messagesPath, key, message, &sent)
	return sent.ID, err
}

const lateAnswer = 700 * time.Millisecond

// work answers every question until the context ends. In a trial with strangers it is
// late, answers the latest question first, and somebody else answers before it.
func (t *trial) work(ctx context.Context) {
	p, err := t.party(t.worker)
	for err == nil {
		var all []item
		if all, err = p.pending(ctx, 20); err != nil || len(all) == 0 {
			continue
		}
		if t.strangers {
			if err = t.answerAsStranger(ctx, all); err != nil || !wait(ctx, lateAnswer) {
				return
			}
			if all, err = p.pending(ctx, 0); err != nil {
				return
			}
			slices.Reverse(all)
		}
		for _, m := range all {
			if m.Payload.N == nil || t.silent {
				continue
			}
			t.answers.LoadOrStore(*m.Payload.N, time.Now())
			answer := map[string]any{"to": m.From, "payload": map[string]int{"echo": *m.Payload.N}, "in_reply_to": m.ID}
			if _, err = p.send(ctx, "answer-"+m.ID, answer); err != nil {
				return
			}
			if err = p.ack(ctx, m.ID); err != nil {
				return
			}
		}
		if t.silent && !wait(ctx, time.Second) {
			return
		}
	}
}

// answerAsStranger sends what looks like the answers, from a Mecha that nobody asked.
func (t *trial) answerAsStranger(ctx context.Context, all []item) error {
	p, err := t.party(t.stranger)
	for _, m := range all {
		if err == nil && m.Payload.N != nil {
			_, err = p.send(ctx, "stranger-"+m.ID,
				map[string]any{"to": t.asker.address, "payload": map[string]int{"echo": *m.Payload.N}})
		}
	}
	return err
}

// ask asks all questions, one after the other if the trial wants that, and waits for all
// answers.
func (t *trial) ask(ctx context.Context) error {
	p, err := t.party(t.asker)
	if err != nil {
		return err
	}
	open := map[string]bool{}
	for n := 1; n <= t.questions; n++ {
		id, err := p.send(ctx, fmt.Sprintf("question-%d", n),
			map[string]any{"to": t.worker.address, "payload": map[string]int{"n": n}})
		if err != nil {
			return err
		}
		open[id] = true
		if t.oneByOne {
			if err := p.collect(ctx, open); err != nil {
				return err
			}
			if err := p.acknowledged(ctx, id); err != nil {
				return err
			}
		}
	}
	return p.collect(ctx, open)
}

// collect waits until each of the questions has an answer.
func (p *party) collect(ctx context.Context, open map[string]bool) error {
	for len(open) > 0 {
		all, err := p.pending(ctx, 20)
		if err != nil {
			return err
		}
		for _, m := range all {
			delete(open, m.InReplyTo)
			if err := p.ack(ctx, m.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// acknowledged waits until the recipient has acknowledged a message.
func (p *party) acknowledged(ctx context.Context, id string) error {
	for {
		var record struct{ State string }
		if err := p.call(ctx, "GET", messagesPath+"/"+id, "", nil, &record); err != nil {
			return err
		}
		if strings.EqualFold(record.State, relay.Acknowledged.String()) {
			return nil
		}
		if !wait(ctx, 50*time.Millisecond) {
			return ctx.Err()
		}
	}
}
