package client_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"relay/http/client"
)

// aRelay starts a relay for an example, with two agents.
func aRelay() (planner, flights *client.Client, stop func()) {
	t := &ofExample{}
	r := mustServe(t)
	return r.mustIssue("planner^acme").Client, r.mustIssue("flights^acme").Client, t.end
}

// ofExample is what an example has of a test.
type ofExample struct {
	testing.TB
	last []func()
}

func (e *ofExample) Helper()           {}
func (e *ofExample) Cleanup(f func())  { e.last = append(e.last, f) }
func (e *ofExample) Error(args ...any) { panic(fmt.Sprint(args...)) }
func (e *ofExample) Fatal(args ...any) { panic(fmt.Sprint(args...)) }

func (e *ofExample) TempDir() string {
	dir, err := os.MkdirTemp("", "relay-example-")
	if err != nil {
		panic(err)
	}
	e.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func (e *ofExample) end() {
	for i := len(e.last) - 1; i >= 0; i-- {
		e.last[i]()
	}
}

// One agent answers, the other asks. In a program of its own, each has its client from
// client.FromEnv.
func Example() {
	planner, flights, end := aRelay()
	defer end()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() {
		ended <- flights.Listen(ctx, client.ListenOptions{}, func(ctx context.Context, m *client.Message) error {
			var trip struct{ To string }
			if err := m.Decode(&trip); err != nil {
				return err
			}
			if trip.To != "LIS" {
				return errors.New("we only fly to LIS")
			}
			return m.Reply(ctx, map[string]float64{"price": 149.9})
		})
	}()

	for _, to := range []string{"LIS", "ZRH"} {
		answer, err := planner.Ask(ctx, "flights^acme", map[string]string{"to": to})
		var failed *client.Failed
		switch {
		case errors.As(err, &failed):
			fmt.Println("no flight:", failed.Detail)
		case err != nil:
			fmt.Println(err)
		default:
			fmt.Println(string(answer.Payload))
		}
	}
	stop()
	fmt.Println("the listener ends with", <-ended)
	// Output:
	// {"price":149.9}
	// no flight: we only fly to LIS
	// the listener ends with <nil>
}

// A message is sent once, though the program sends it again after a crash.
func ExampleClient_Send() {
	planner, _, end := aRelay()
	defer end()
	for range 2 {
		sent, err := planner.Send(context.Background(), "flights^acme", map[string]string{"book": "the 149.90 one"},
			client.SendOptions{Type: "order", TTL: time.Hour, IdempotencyKey: "order-17"})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("sent before:", sent.Replayed)
	}
	// Output:
	// sent before: false
	// sent before: true
}

// The relay says why there is no answer.
func ExampleNoAnswer() {
	planner, _, end := aRelay()
	defer end()
	ctx := context.Background()
	question, err := planner.Send(ctx, "flights^acme", struct{}{})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = question.AwaitReply(ctx, 200*time.Millisecond)
	var none *client.NoAnswer
	if errors.As(err, &none) {
		verdict := none.Verdict
		if verdict.Text == "" { // the relay had no time to say so
			trace, err := planner.Trace(ctx, none.MessageID)
			if err != nil {
				fmt.Println(err)
				return
			}
			verdict = trace.Verdict
		}
		fmt.Println(verdict.Text)
	}
	_, err = planner.Ask(ctx, "flihgts^acme", struct{}{})
	var refused *client.Refusal
	if errors.Is(err, client.ErrRecipientNotFound) && errors.As(err, &refused) {
		fmt.Println("did you mean", refused.DidYouMean[0])
	}
	// Output:
	// flights^acme has never made a request.
	// did you mean flights^acme
}

// Several workers share the messages of one agent. What cannot be done now is deferred.
func ExampleClient_Listen_workers() {
	planner, flights, end := aRelay()
	defer end()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	for range 3 {
		if _, err := planner.Send(ctx, "flights^acme", map[string]string{"to": "LIS"}); err != nil {
			fmt.Println(err)
			return
		}
	}
	done := make(chan string, 3)
	o := client.ListenOptions{Claim: true, Jobs: 2, Lease: 30 * time.Second}
	ended := make(chan error)
	go func() {
		ended <- flights.Listen(ctx, o, func(ctx context.Context, m *client.Message) error {
			if m.Attempt == 1 {
				return m.Defer(ctx, time.Second)
			}
			done <- fmt.Sprintf("attempt %d", m.Attempt)
			return nil
		})
	}()
	for range 3 {
		fmt.Println(<-done)
	}
	stop()
	<-ended
	// Output:
	// attempt 2
	// attempt 2
	// attempt 2
}

// Waiting messages can be read without a listener, and worked on one by one.
func ExampleClient_Inbox() {
	planner, flights, end := aRelay()
	defer end()
	ctx := context.Background()
	sent, err := planner.Send(ctx, "flights^acme", map[string]string{"to": "LIS"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for m, err := range flights.Inbox(ctx, 10) {
		if err != nil {
			fmt.Println(err)
			return
		}
		err = m.Working(ctx, func(context.Context) error {
			fmt.Println(m.Sender, string(m.Payload))
			return nil
		})
		if err != nil {
			fmt.Println(err)
		}
	}
	t, err := planner.Trace(ctx, sent.MessageID)
	fmt.Println(t.Verdict.Code, err)
	// Output:
	// planner^acme {"to":"LIS"}
	// acknowledged <nil>
}

// An agent says what it can do, and another one finds it.
func ExampleClient_Find() {
	c, err := client.FromEnv()
	if err != nil {
		fmt.Println(err)
		return
	}
	found, err := c.Find(context.Background(), "a trip to Lisbon")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, agent := range found.Agents {
		fmt.Println(agent.Address, agent.Online, agent.Why.Terms)
	}
}
