// Package demo is relay demo: a server and its clients in one process, which tell the
// whole story on a temporary database.
package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"relay/cmd/internal/cli"
	"relay/cmd/internal/serve"
	"relay/db/relay"
	"relay/http/client"
	"relay/http/docs"
)

func init() {
	cli.Register(cli.Ring{Name: "demo", Commands: []cli.Command{{Group: "server", Make: command}}})
	docs.Register(docs.Ring{Name: "demo"}) // other pages describe this ring, which has no page of its own
}

// command makes relay demo.
func command(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "See the whole story in one command, on a temporary database",
		Long: `Start a relay on a temporary database, register two Mechas, and let them talk:
discovery, signed messages, live push, acknowledgements, a restart in between,
history. Nothing is left behind.`,
		Example: "  relay demo",
		Args:    cli.Exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			// relay demo | head must clean up as well, and so not die of a broken pipe.
			signal.Ignore(syscall.SIGPIPE)
			ctx, cancel := context.WithTimeout(cmd.Context(), time.Minute)
			defer cancel()
			dir, err := os.MkdirTemp("", "relay-demo-")
			if err != nil {
				return err
			}
			defer os.RemoveAll(dir)
			d := &demo{App: a, out: a.Stdout, file: filepath.Join(dir, "relay.db")}
			if a.JSON {
				d.out = io.Discard
			}
			defer d.stop()
			if err := d.tell(ctx); err != nil {
				return fmt.Errorf("the demo failed: %w", err)
			}
			if a.JSON {
				return a.PrintJSON(map[string]any{"ok": true, "messages": d.count})
			}
			return nil
		},
	}
}

// demo is the story that relay demo tells, with a real server and real clients.
type demo struct {
	*cli.App
	out     io.Writer
	file    string          // the database
	in      *serve.Instance // nil while the relay is stopped
	keys    [2]string       // of planner and flights
	planner *client.Client  // new after every start of the relay, which moves to another port
	flights *client.Client
	count   int // messages sent
}

const (
	planner = relay.Address("planner^acme")
	flights = relay.Address("flights^acme")
)

func (d *demo) tell(ctx context.Context) error {
	for _, chapter := range []func(context.Context) error{d.begin, d.register, d.find, d.talk, d.restart, d.lookBack} {
		if err := chapter(ctx); err != nil {
			return err
		}
	}
	d.say("That was all: one binary, one file. Next: relay serve --dev, or relay --help.")
	return nil
}

func (d *demo) say(format string, args ...any)  { fmt.Fprintf(d.out, "\n"+format+"\n", args...) }
func (d *demo) show(format string, args ...any) { fmt.Fprintf(d.out, "    "+format+"\n", args...) }

func (d *demo) begin(ctx context.Context) error {
	if err := d.serve(ctx); err != nil {
		return err
	}
	d.say("1. A relay starts on an empty database. It takes signed requests only.")
	d.show("%s", d.in.URL())
	return nil
}

func (d *demo) serve(ctx context.Context) (err error) {
	d.in, err = serve.Start(ctx, d.App, slog.New(slog.DiscardHandler), "--addr=127.0.0.1:0",
		"--require-message-signature", "--db", d.file)
	if err != nil || d.keys[0] == "" {
		return err
	}
	return d.connect()
}

// connect makes the clients of the two agents.
func (d *demo) connect() (err error) {
	if d.planner, err = client.New(client.Config{URL: d.in.URL(), Key: d.keys[0]}); err == nil {
		d.flights, err = client.New(client.Config{URL: d.in.URL(), Key: d.keys[1]})
	}
	return err
}

func (d *demo) stop() {
	if d.in != nil {
		d.in.Stop()
		d.in = nil
	}
}

func (d *demo) register(ctx context.Context) error {
	d.say("2. Two agents are registered; each gets a key, which is shown once and never stored.")
	for i, address := range []relay.Address{planner, flights} {
		k, err := d.in.DB().Issue(&relay.IssueKey{At: time.Now(), Address: address})
		if err != nil {
			return err
		}
		d.keys[i] = k.Text
		d.show("%s  %s…", address, k.Text[:12])
	}
	if err := d.connect(); err != nil {
		return err
	}
	own, err := d.flights.Address(ctx)
	if err == nil && own != flights {
		err = fmt.Errorf("the key of %s belongs to %s", flights, own)
	}
	return err
}

// find lets planner discover flights by its profile.
func (d *demo) find(ctx context.Context) error {
	d.say("3. flights says what it can do; planner does not know it, and searches: trip to Lisbon")
	profile := map[string]any{"description": "books flights", "skills": []any{
		map[string]any{"id": "book", "name": "Book a flight", "examples": []string{"I need a trip to Lisbon on Friday"}}}}
	if err := d.flights.Publish(ctx, profile); err != nil {
		return err
	}
	for { // a changed profile is found within a second
		found, err := d.planner.Find(ctx, "trip to Lisbon")
		if err != nil {
			return err
		}
		if len(found.Agents) > 0 {
			hit := found.Agents[0]
			d.show("found %s, for its skill %q: %s", hit.Address, hit.Why.SkillID, strings.Join(hit.Why.Terms, ", "))
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// talk shows a question that is pushed, acknowledged over the socket and
// receipted, and an answer that is acknowledged over HTTP.
func (d *demo) talk(ctx context.Context) error {
	d.say("4. flights listens on a WebSocket, and planner on another, with receipts. planner asks:")
	listening, err := d.flights.Dial(ctx, flights, "")
	if err != nil {
		return err
	}
	defer listening.Close()
	asking, err := d.planner.Dial(ctx, planner, "events=receipts")
	if err != nil {
		return err
	}
	defer asking.Close()
	sent, err := d.send(ctx, d.planner, flights, `{"from": "ZRH", "to": "LIS", "max_price": 180.00}`, "")
	if err != nil {
		return err
	}
	d.show("the 201 says: it is on disk")
	question, err := d.receive(listening, "flights")
	if err != nil {
		return err
	}
	if err := listening.Send(map[string]string{"type": "ack", "message_id": question.MessageID, "status": "completed",
		"client_ts": relay.FormatTime(time.Now())}); err != nil {
		return err
	}
	var receipt pushed
	if err := asking.Receive(&receipt); err != nil {
		return err
	}
	d.show("flights acks over the socket; planner's receipt says: %s, %s", receipt.State, receipt.Status)

	d.say("5. flights answers in the same conversation; planner acks over HTTP.")
	if _, err = d.send(ctx, d.flights, planner, `{"price": 149.90, "seats": 3}`, sent.ConversationID); err != nil {
		return err
	}
	answer, err := d.receive(asking, "planner")
	if err != nil {
		return err
	}
	return d.ack(ctx, d.planner, answer.MessageID)
}

// restart shows that accepted messages outlive the process, and that a cursor resumes.
func (d *demo) restart(ctx context.Context) error {
	d.say("6. flights is away. planner sends two more; then the relay itself is stopped and started again.")
	first, err := d.send(ctx, d.planner, flights, `{"book": "the 149.90 one"}`, "")
	if err != nil {
		return err
	}
	if _, err := d.send(ctx, d.planner, flights, `{"seat": "12A"}`, ""); err != nil {
		return err
	}
	d.stop()
	if err := d.serve(ctx); err != nil {
		return err
	}
	d.show("back at %s", d.in.URL())
	d.say("7. flights comes back, and asks for what came after the first of the two: only the second is pushed.")
	listening, err := d.flights.Dial(ctx, flights, "since_message_id="+first.MessageID)
	if err != nil {
		return err
	}
	defer listening.Close()
	missed, err := d.receive(listening, "flights")
	if err != nil {
		return err
	}
	return d.ack(ctx, d.flights, missed.MessageID)
}

func (d *demo) lookBack(ctx context.Context) error {
	d.say("8. The history of flights, oldest first:")
	var page struct {
		Messages []struct {
			From, To, State string
			CreatedAt       string          `json:"created_at"`
			Payload         json.RawMessage `json:"payload"`
		}
	}
	if err := d.flights.Call(ctx, "GET", "/api/v1/mecha/flights%5Eacme/messages?include=payload", nil, &page); err != nil {
		return err
	}
	for _, m := range page.Messages {
		text := string(m.Payload)
		if m.Payload == nil {
			text = "(sent by flights: its payload is for planner)"
		}
		d.show("%s  %-12s → %-12s  %-12s  %s", m.CreatedAt[11:23], m.From, m.To, m.State, text)
	}
	if len(page.Messages) != d.count {
		return fmt.Errorf("%d messages were sent, but history has %d", d.count, len(page.Messages))
	}
	return nil
}

func (d *demo) send(
	ctx context.Context, from *client.Client, to relay.Address, payload, conversation string,
) (*client.Sent, error) {
	// Not marshalled: that would compact the payload, which is received exactly as it is sent.
	sent, err := from.Send(ctx, string(to), []byte(payload), client.SendOptions{ConversationID: conversation})
	if err == nil {
		d.count++
		d.show("→ %s  %s  %s", to, payload, sent.MessageID)
	}
	return sent, err
}

// pushed is what the demo shows of a frame.
type pushed struct {
	Type          string
	MessageID     string `json:"message_id"`
	PayloadBase64 []byte `json:"payload_base64"` // of a message
	State, Status string // of a receipt
}

func (d *demo) receive(s *client.Socket, who string) (m pushed, err error) {
	if err = s.Receive(&m); err != nil {
		return m, err
	}
	if m.Type != "message" {
		return m, fmt.Errorf("%s expected a message and got %q", who, m.Type)
	}
	d.show("%s receives: %s", who, m.PayloadBase64)
	return m, nil
}

func (d *demo) ack(ctx context.Context, c *client.Client, id string) error {
	out, err := c.Ack(ctx, id, "completed", "")
	if err == nil {
		d.show("acknowledged over HTTP: %s", out.State)
	}
	return err
}
