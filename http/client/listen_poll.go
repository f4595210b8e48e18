package client

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"relay/db/relay"
)

// Where no WebSocket can be had, because a proxy on the way does not know them, a listener asks
// the history for messages, and the relay holds each request until there is one.

const (
	pollWait = 25 * time.Second // proxies cut requests that last longer than half a minute
	pollPage = 100              // messages
)

// withoutSockets reports whether a handshake was answered by somebody who does not know
// WebSockets.
func withoutSockets(err error) bool {
	var r *Refusal
	if !errors.As(err, &r) {
		return false
	}
	return r.Code == relay.UpgradeRequired || // a proxy has taken the header away
		r.Code == "" && (r.Status < 500 && r.Status != http.StatusTooManyRequests || r.Status == http.StatusNotImplemented)
}

// pollAll is receiveAll without WebSockets. A pass begins with the oldest pending message and ends
// when there is nothing new for a while. The next pass finds what was deferred meanwhile.
func (l *listener) pollAll(ctx context.Context) error {
	b := Backoff{Most: maxPause}
	l.o.Report(Event{What: Connected, Address: l.own, Polling: true})
	for cursor := l.taken; ctx.Err() == nil; {
		page, err := l.poll(ctx, cursor)
		for i := 0; err == nil && i < len(page.Messages); i++ {
			if err = l.takePolled(ctx, &page.Messages[i]); err == nil {
				cursor = page.Messages[i].MessageID
			}
		}
		if err != nil {
			if err = l.reconnectAfter(ctx, err, &b); err != nil {
				return err
			}
			continue
		}
		b.Reset()
		switch {
		case page.More:
			cursor = page.Next
		case len(page.Messages) == 0 && !l.o.keepsPlace():
			cursor = ""
		}
	}
	return nil
}

type page struct {
	Messages []frame
	More     bool   `json:"has_more"`
	Next     string `json:"next_cursor"`
}

func (l *listener) poll(ctx context.Context, cursor string) (p page, err error) {
	q := url.Values{"direction": {"in"}, "include": {"payload"}, "limit": {strconv.Itoa(pollPage)},
		"wait": {strconv.Itoa(int(pollWait / time.Second))}}
	if cursor != "" {
		q.Set("since_message_id", cursor)
	}
	if cursor == "" || !l.o.keepsPlace() {
		q.Set("state", "pending")
	}
	return p, l.c.Call(ctx, "GET", mechaPath(l.own, "/messages?"+q.Encode()), nil, &p)
}

// takePolled hands a message to a task, unless it is known, has expired or is deferred.
func (l *listener) takePolled(ctx context.Context, f *frame) error {
	m := l.c.message(f)
	if m.State == relay.Expired.String() {
		return nil
	}
	if m.Status == relay.Deferred && !l.o.keepsPlace() {
		t, err := l.c.Trace(ctx, m.ID)
		if err != nil || t.Verdict.Code == relay.VerdictDeferred {
			return err
		}
		l.mu.Lock()
		m.Attempt = l.done.attempt(m.ID) + 1 // a record does not say it
		l.mu.Unlock()
	}
	fresh, err := l.fresh(ctx, m)
	if fresh {
		err = l.take(ctx, m)
	}
	if Refused(err, relay.MessageNotFound) { // it was removed
		return nil
	}
	return err
}
