package ring

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"relay/cmd/internal/cli"
	"relay/cmd/internal/remote"
	"relay/db/relay"
	"relay/http/client"
)

// A bell announces to an agent that messages are pending. It has their ids and senders, never their content: a
// bell goes into the context of a model, which must not get untrusted text before the agent asks for it.
//
// A bell that has rung is outstanding until one of its messages is acknowledged, deferred or marked as
// delivered, or is otherwise no longer pending. While a bell is outstanding no other bell rings, however many
// messages come, and no message rings twice unless it was deferred and has become due. So a bell that nobody
// answers costs one turn of a model, not one for each message.
//
// The bell polls the relay over HTTP. A socket would learn sooner that a deferred message is due, but a message
// that is written to a socket counts as pushed, though nobody has seen it.
type bell struct {
	c   *client.Client
	own relay.Address

	// announced has the messages of the last bell that are still pending, and the state of each at that time.
	announced   map[string]string
	outstanding bool

	busy map[string]time.Time // by message and state: when to ask again whether it is being handled
}

// waiting is a pending message, as a bell announces it.
type waiting struct {
	MessageID string        `json:"message_id"`
	From      relay.Address `json:"from"`
}

const (
	bellPage   = 200             // the newest pending messages are looked at
	bellList   = 20              // messages that a bell names
	bellWait   = 50              // seconds of a long-poll, when nothing is pending
	bellAgain  = 2 * time.Second // between two polls, when something is
	bellPauses = 30 * time.Second
	bellBusy   = time.Minute // at most, between two requests whether a message is being handled
)

// pendingRecord is what a bell reads of a record.
type pendingRecord struct {
	waiting
	State string
	Ack   *struct{ Status, At string }
}

// word returns the state of a message. If it changes, somebody has handled the message.
func (r *pendingRecord) word() string {
	if r.Ack == nil {
		return r.State
	}
	return r.Ack.Status + " " + r.Ack.At
}

// singleWord removes all characters that ids and addresses do not have. Otherwise a server that pretends to be
// the relay could pass sentences to the model.
func singleWord(word string) string {
	if len(word) <= longestWord && wordForm.MatchString(word) {
		return word
	}
	return "(unreadable)"
}

const longestWord = 160

var wordForm = regexp.MustCompile(`^[A-Za-z0-9_.:~^-]+$`)

// news reports whether a bell may ring for the message.
func (b *bell) news(r *pendingRecord) bool {
	was, known := b.announced[r.MessageID]
	return !known || r.Ack != nil && r.Ack.Status == "deferred" && was != r.word()
}

// begin asks the relay whose bell this is, and retries while the relay is down.
func (b *bell) begin(ctx context.Context) error {
	return persist(ctx, func() error {
		own, err := b.c.Address(ctx)
		b.own = relay.Address(singleWord(string(own)))
		return err
	})
}

// next waits until the bell must ring. It returns its messages, the newest first, and how many are pending, up
// to bellPage. The error is ctx's, or a permanent one.
func (b *bell) next(ctx context.Context) (fresh []waiting, pending int, err error) {
	for {
		var page []pendingRecord
		began := time.Now()
		err := persist(ctx, func() (err error) {
			page, err = b.look(ctx)
			if err == nil {
				fresh, err = b.due(ctx, page)
			}
			return err
		})
		if err != nil {
			return nil, 0, err
		}
		if len(fresh) > 0 {
			b.ring(page, fresh)
			for i, m := range fresh {
				fresh[i] = waiting{singleWord(m.MessageID), relay.Address(singleWord(string(m.From)))}
			}
			return fresh, len(page), nil
		}
		// After a long-poll the next one follows at once, unless the server answers without waiting.
		if (len(page) > 0 || time.Since(began) < bellAgain) && !client.Sleep(ctx, bellAgain) {
			return nil, 0, ctx.Err()
		}
	}
}

// persist calls f until it succeeds, with growing pauses. It writes nothing to stderr, because a hook's stderr
// goes to the model.
func persist(ctx context.Context, f func() error) error {
	pauses := client.Backoff{Most: bellPauses}
	for {
		err := f()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case !client.Temporary(err):
			return err
		case !client.Sleep(ctx, pauses.Pause(err)):
			return ctx.Err()
		}
	}
}

// look returns the newest pending messages. If no message is pending, it waits for one for a while.
func (b *bell) look(ctx context.Context) ([]pendingRecord, error) {
	var page struct{ Messages []pendingRecord }
	path := fmt.Sprintf("/api/v1/mecha/%s/messages?direction=in&state=pending&order=desc&limit=%d&wait=%d",
		b.own, bellPage, bellWait)
	err := b.c.Call(ctx, "GET", path, nil, &page)
	return page.Messages, err
}

// due returns the messages of a page for which the bell must ring now.
func (b *bell) due(ctx context.Context, page []pendingRecord) (fresh []waiting, err error) {
	b.answered(page)
	if b.outstanding {
		return nil, nil
	}
	for i := range page {
		if !b.news(&page[i]) {
			continue
		}
		busy, err := b.inHand(ctx, &page[i])
		if err != nil {
			return nil, err
		}
		if !busy {
			fresh = append(fresh, page[i].waiting)
		}
		if len(fresh) == bellList {
			break
		}
	}
	return fresh, nil
}

// inHand reports whether a message is deferred or held by a worker.
func (b *bell) inHand(ctx context.Context, r *pendingRecord) (bool, error) {
	key := r.MessageID + " " + r.word()
	if time.Now().Before(b.busy[key]) {
		return true, nil
	}
	delete(b.busy, key)
	var trace struct {
		Steps   []struct{ Until time.Time }
		Verdict struct{ Code string }
	}
	err := b.c.Call(ctx, "GET", "/api/v1/messages/"+r.MessageID+"/trace", nil, &trace)
	switch {
	case client.Refused(err, relay.MessageNotFound):
		return true, nil // removed since the poll
	case err != nil:
		return false, err
	case trace.Verdict.Code != "deferred" && trace.Verdict.Code != "claimed":
		return false, nil
	}
	now, until := time.Now(), time.Time{}
	for _, s := range trace.Steps {
		if s.Until.After(until) {
			until = s.Until
		}
	}
	again := now.Add(bellBusy)
	if soon := now.Add(bellAgain); !until.IsZero() && until.Before(soon) { // the relay may take a second to end it
		again = soon
	} else if until.After(soon) && until.Before(again) {
		again = until
	}
	if b.busy == nil || len(b.busy) > 2*bellPage {
		b.busy = map[string]time.Time{}
	}
	b.busy[key] = again
	return true, nil
}

// answered ends the outstanding bell if the state of one of its messages has changed. A message that is older
// than a full page does not count, since the page does not show it.
func (b *bell) answered(page []pendingRecord) {
	now := map[string]string{}
	for i := range page {
		now[page[i].MessageID] = page[i].word()
	}
	for id, was := range b.announced {
		word, there := now[id]
		hidden := !there && len(page) == bellPage && id < page[len(page)-1].MessageID
		if hidden {
			continue
		}
		if word != was {
			b.outstanding = false
		}
		if !there {
			delete(b.announced, id)
		}
	}
	b.outstanding = b.outstanding && len(b.announced) > 0
}

// ring remembers the messages of a bell: those it names, and all others that were pending and not deferred.
func (b *bell) ring(page []pendingRecord, fresh []waiting) {
	named := map[string]bool{}
	for _, m := range fresh {
		named[m.MessageID] = true
	}
	announced := map[string]string{}
	for i := range page {
		r := &page[i]
		_, known := b.announced[r.MessageID]
		if named[r.MessageID] || known && !b.news(r) || len(fresh) == bellList &&
			(r.Ack == nil || r.Ack.Status != "deferred") {
			announced[r.MessageID] = r.word()
		}
	}
	b.announced, b.outstanding = announced, true
}

// bellLine is a bell in one line, for monitors.
func bellLine(fresh []waiting, pending int) string {
	var each []string
	for _, m := range fresh {
		each = append(each, fmt.Sprintf("%s from %s", m.MessageID, m.From))
	}
	return fmt.Sprintf("relay: %s: %s", pendingCount(pending), strings.Join(each, ", "))
}

func pendingCount(n int) string {
	if n == bellPage {
		return fmt.Sprintf("%d or more messages are pending", n)
	}
	return map[bool]string{true: "1 message is pending", false: fmt.Sprintf("%d messages are pending", n)}[n == 1]
}

// bellJSON is a bell for programs.
type bellJSON struct {
	MechaID  relay.Address `json:"mecha_id"`
	Pending  int           `json:"pending"`
	Messages []waiting     `json:"messages"`
}

// belling adds --bell to relay listen, before the last paragraph of its help.
func (a *app) belling(listen *cobra.Command) {
	at := strings.LastIndex(listen.Long, "\n\n")
	listen.Long = listen.Long[:at] + `

With --bell, no message is printed: one line with ids and senders announces that
messages are pending. The next line comes only after one of them is
acknowledged, deferred or marked as delivered. See relay docs waking.` + listen.Long[at:]
	listen.Example += "\n  relay listen --bell"
	bell := listen.Flags().Bool("bell", false, "one line, with ids and senders only, when messages are pending")
	run := listen.RunE
	listen.RunE = func(cmd *cobra.Command, args []string) error {
		if !*bell {
			return run(cmd, args)
		}
		text := func(name string) string { return cmd.Flag(name).Value.String() }
		c, err := (&remote.Flags{URL: text("url"), KeyFile: text("key-file"), SecretFile: text("signing-secret-file"),
			CAFile: text("ca-file")}).Client()
		if err != nil {
			return err
		}
		for _, other := range []string{"exec", "ack", "claim", "state"} {
			if f := cmd.Flag(other); f.Value.String() != f.DefValue {
				return cli.Usagef("--bell cannot be combined with --exec, --ack, --claim or --state")
			}
		}
		return remote.Advice(a.listenForBells(cmd.Context(), c))
	}
}

// listenForBells prints a line for each bell until ctx ends. It saves nothing: after a restart the first bell
// announces all pending messages.
func (a *app) listenForBells(ctx context.Context, c *client.Client) error {
	b := &bell{c: c}
	err := b.begin(ctx)
	if err == nil {
		fmt.Fprintf(a.Stderr, "listening as %s\n", b.own)
	}
	for err == nil {
		var fresh []waiting
		var pending int
		if fresh, pending, err = b.next(ctx); err != nil {
			break
		}
		if a.JSON {
			err = a.PrintJSON(bellJSON{b.own, pending, fresh})
		} else {
			_, err = fmt.Fprintln(a.Stdout, bellLine(fresh, pending))
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// sessionOf reads the session from the JSON that a program gives its hooks on stdin: session_id (Claude Code,
// Codex) or conversation_id (Cursor). It returns "" for anything else.
func sessionOf(text []byte) string {
	var input struct {
		SessionID      any `json:"session_id"`
		ConversationID any `json:"conversation_id"`
	}
	if json.Unmarshal(text, &input) != nil {
		return ""
	}
	for _, id := range []any{input.SessionID, input.ConversationID} {
		if s, ok := id.(string); ok && s != "" {
			return s
		}
	}
	return ""
}
