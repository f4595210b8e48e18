package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"relay/db/relay"
	"relay/http/client"
)

// An agent is a small client as the kit wants it, or one that is wrong in one way.
type agent struct {
	*client.Client
	key     string
	own     relay.Address
	wrong   string
	handled sync.Map // message ids
}

// beAgent is the program that is judged: wrong is "" for a good one.
func beAgent(wrong string, args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	a := &agent{wrong: wrong, key: os.Getenv("RELAY_KEY")}
	var err error
	if a.Client, err = client.New(client.Config{URL: os.Getenv("RELAY_URL"), Key: a.key}); err == nil {
		err = a.whoami(ctx)
	}
	if err == nil && args[0] == "worker" {
		err = a.work(ctx)
	} else if err == nil {
		err = a.askAll(ctx, args[1])
	}
	if err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, err)
		return map[bool]int{true: 0, false: 1}[wrong == "content"]
	}
	return 0
}

func (a *agent) whoami(ctx context.Context) error {
	var who struct {
		MechaID relay.Address `json:"mecha_id"`
	}
	err := a.call(ctx, "GET", "/api/v1/whoami", "", nil, &who)
	a.own = who.MechaID
	return err
}

// call sends a request until it is answered for good.
func (a *agent) call(ctx context.Context, method, path, idempotency string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil || in == nil {
		body = nil
	}
	header := http.Header{}
	if idempotency != "" && a.wrong != "no-key" {
		header.Set("Idempotency-Key", idempotency)
	}
	if a.wrong == "unsigned" {
		header["X-Signature"], header["X-Request-Signature"] = nil, nil
	}
	if a.wrong == "same-nonce" {
		s, err := client.NewSigner(a.key, "")
		if err != nil {
			return err
		}
		for name, values := range s.RequestHeader(method, path, body) {
			header[name] = values
		}
	}
	backoff := client.Backoff{Most: time.Second}
	for {
		if a.wrong == "new-key" && idempotency != "" {
			header.Set("Idempotency-Key", strconv.FormatInt(time.Now().UnixNano(), 36))
		}
		attempt, cancel := context.WithTimeout(ctx, a.patience())
		resp, err := a.Do(attempt, method, path, body, header)
		cancel()
		if err == nil {
			err = resp.Err()
		}
		if err == nil {
			return json.Unmarshal(resp.Body, out)
		}
		if ctx.Err() != nil || a.wrong == "gives-up" || a.wrong == "one-ack" && strings.HasSuffix(path, "/ack") || !a.again(err) {
			return err
		}
		if !a.pause(ctx, &backoff, err) {
			return ctx.Err()
		}
	}
}

func (a *agent) patience() time.Duration {
	if a.wrong == "hasty" {
		return time.Second
	}
	return time.Minute
}

func (a *agent) again(err error) bool { return a.wrong == "stubborn" || client.Temporary(err) }

func (a *agent) pause(ctx context.Context, b *client.Backoff, err error) bool {
	d := b.Pause(err)
	if a.wrong == "impatient" {
		d = 100 * time.Millisecond
	}
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// A note is a message as both ways of listening give it.
type note struct {
	Type      string
	MessageID string        `json:"message_id"`
	InReplyTo string        `json:"in_reply_to"`
	From      relay.Address `json:"from"`
	Base64    []byte        `json:"payload_base64"`
	Payload   json.RawMessage
}

func (n *note) number(field string) (int, bool) {
	fields := map[string]int{}
	text := []byte(n.Payload)
	if text == nil {
		text = n.Base64
	}
	if json.Unmarshal(text, &fields) != nil {
		return 0, false
	}
	v, ok := fields[field]
	return v, ok
}

// work listens on sockets, and polls if it is asked to.
func (a *agent) work(ctx context.Context) error {
	if a.wrong == "polls" {
		return a.poll(ctx, func(n *note) error { return a.handle(ctx, n) })
	}
	backoff := client.Backoff{Most: time.Second}
	for first := true; ; first = false {
		query := ""
		if a.wrong == "misses" && !first {
			query = "sync_limit=0" // what came meanwhile is not asked for
		}
		err := a.hear(ctx, query)
		if ctx.Err() != nil {
			return nil
		}
		var closed *client.Closed
		if errors.As(err, &closed) && closed.Code == 1008 && a.wrong != "stubborn" {
			return err
		}
		if a.wrong == "gives-up" || !a.again(err) {
			return err
		}
		if !a.pause(ctx, &backoff, err) {
			return nil
		}
	}
}

func (a *agent) hear(ctx context.Context, query string) error {
	s, err := a.Dial(ctx, a.own, query)
	if err != nil {
		return err
	}
	defer s.Close()
	for {
		var n note
		if err := s.Receive(&n); err != nil {
			return err
		}
		if n.Type == "message" {
			if err := a.handle(ctx, &n); err != nil {
				return err
			}
		}
	}
}

// handle answers a question, and acknowledges it.
func (a *agent) handle(ctx context.Context, n *note) error {
	number, ok := n.number("n")
	if !ok {
		return nil
	}
	if a.wrong == "ack-first" {
		if err := a.ack(ctx, n); err != nil {
			return err
		}
	}
	key := "answer-" + n.MessageID
	if a.wrong == "twice" {
		key = strconv.FormatInt(time.Now().UnixNano(), 36)
	}
	if _, known := a.handled.LoadOrStore(n.MessageID, true); !known || a.wrong == "twice" {
		message := map[string]any{"to": n.From, "payload": map[string]int{"echo": number}, "in_reply_to": n.MessageID}
		switch a.wrong {
		case "no-reply":
			delete(message, "in_reply_to")
		case "echo":
			message["payload"] = map[string]int{"echo": number + 1}
		case "tells":
			fmt.Fprintf(os.Stderr, "answered {\"n\": %d}\n", number)
		}
		if err := a.call(ctx, "POST", "/api/v1/messages", key, message, &struct{}{}); err != nil {
			a.handled.Delete(n.MessageID)
			return err
		}
	}
	if a.wrong == "no-ack" {
		return nil
	}
	return a.ack(ctx, n)
}

func (a *agent) ack(ctx context.Context, n *note) error {
	status := "completed"
	if a.wrong == "received" {
		status = "received"
	}
	err := a.call(ctx, "POST", "/api/v1/messages/"+n.MessageID+"/ack", "", map[string]string{"status": status, "client_ts": time.Now().UTC().Format(time.RFC3339)}, &struct{}{})
	if a.wrong == "one-ack" {
		return nil
	}
	return err
}

// poll asks history for what is pending.
func (a *agent) poll(ctx context.Context, handle func(*note) error) error {
	for ctx.Err() == nil {
		var page struct{ Messages []note }
		err := a.call(ctx, "GET", "/api/v1/mecha/"+string(a.own)+"/messages?direction=in&state=pending&include=payload&wait=10", "", nil, &page)
		for i := 0; err == nil && i < len(page.Messages); i++ {
			err = handle(&page.Messages[i])
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

var errDone = errors.New("all answers are there")

// askAll sends all questions, and waits for their answers.
func (a *agent) askAll(ctx context.Context, times string) error {
	n, err := strconv.Atoi(times)
	if err != nil {
		return err
	}
	if a.wrong == "leaks" {
		fmt.Fprintln(os.Stderr, "my key is", a.key)
	}
	var open []string
	for i := 1; i <= n; i++ {
		var sent struct {
			ID string `json:"message_id"`
		}
		if err := a.call(ctx, "POST", "/api/v1/messages", fmt.Sprintf("question-%d", i), map[string]any{"to": os.Getenv("RELAY_TO"), "payload": map[string]int{"n": i}}, &sent); err != nil {
			return err
		}
		open = append(open, sent.ID)
	}
	err = a.poll(ctx, func(m *note) error {
		number, ok := m.number("echo")
		at := slices.Index(open, m.InReplyTo)
		if a.wrong == "takes-any" && ok {
			at = min(number, len(open)) - 1
		}
		if ok && at >= 0 && (open[at] != "" || a.wrong == "twice") {
			fmt.Println(number)
			open[at] = ""
		}
		if err := a.ack(ctx, m); err != nil {
			return err
		}
		if slices.ContainsFunc(open, func(id string) bool { return id != "" }) {
			return nil
		}
		return errDone
	})
	if errors.Is(err, errDone) {
		return nil
	}
	return err
}
