package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"strings"

	"relay/cmd/child"
)

// startLimited starts the relay whose fairness is measured: Config.Server, with the
// default limits. It may open so many files; 0 leaves their number as it is.
func (b *bench) startLimited(ctx context.Context, file string, files int, args ...string) (*server, error) {
	s := &server{file: file, stop: func() {}, program: b.serverProgram(), env: child.Environ()}
	s.args = append([]string{"serve", "--addr=127.0.0.1:0", "--db=" + file, "--log-format=json"}, args...)
	if files > 0 { // both limits: a Go program raises the soft one to the hard one
		s.args = append([]string{"-c", `ulimit -n "$0" && exec "$@"`, fmt.Sprint(files), s.program}, s.args...)
		s.program = "/bin/sh"
	}
	b.servers = append(b.servers, s)
	return s, b.launch(ctx, s)
}

func (b *bench) serverProgram() string {
	if b.Server != "" {
		return b.Server
	}
	return b.Program
}

// command runs a command of the server's own program on the server's file.
func (b *bench) command(ctx context.Context, s *server, stdin []byte, args ...string) ([]byte, error) {
	c := exec.CommandContext(ctx, b.serverProgram(), append(args, "--db="+s.file)...)
	var out, stderr bytes.Buffer
	c.Stdin, c.Stdout, c.Stderr, c.Env = bytes.NewReader(stdin), &out, &stderr, child.Environ()
	if err := c.Run(); err != nil {
		return nil, fmt.Errorf("relay %s: %w: %s", args[0], err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out.Bytes(), nil
}

func (b *bench) issueByCommand(ctx context.Context, s *server, names []string) (all []*mecha, err error) {
	out, err := b.command(ctx, s, nil, append([]string{"key", "create", "--json"}, names...)...)
	if err != nil {
		return nil, err
	}
	for lines := json.NewDecoder(bytes.NewReader(out)); lines.More(); {
		var k struct {
			MechaID string `json:"mecha_id"`
			Key     string
		}
		if err := lines.Decode(&k); err != nil {
			return nil, err
		}
		all = append(all, &mecha{address: k.MechaID, key: k.Key})
	}
	if len(all) != len(names) {
		return nil, fmt.Errorf("%d keys were made, not %d", len(all), len(names))
	}
	return all, nil
}

// sendOne sends a message and returns its id.
func sendOne(c *conn, from, to *mecha, payload []byte) (string, error) {
	answer, err := c.do(from, "POST", sendPath, appendSend(nil, to, payload), http.StatusCreated)
	if err != nil {
		return "", err
	}
	id := textField(answer, "message_id")
	if id == nil {
		return "", errors.New("a 201 without a message_id")
	}
	return string(id), nil
}

// rareType is the type of one message of the crowd. The relay could answer at once
// if no message had ever had that type.
const rareType = "rare"

// fillRival fills the history that the first rival pages through.
func (b *bench) fillRival(ctx context.Context, ar *arena) error {
	rare := fmt.Appendf(nil, `{"to":%q,"message_type":%q,"payload":{}}`, ar.crowd[1].address, rareType)
	err := b.connect(ctx, ar.server, func(c *conn) error {
		_, err := c.do(ar.crowd[0], "POST", sendPath, rare, http.StatusCreated)
		return err
	})
	if err != nil {
		return err
	}
	return b.fill(ctx, ar.server, ar.crowd, ar.rivals[0], b.Messages, []byte(`{}`))
}

// messageFromRival sends the first rival a message of its own.
func (b *bench) messageFromRival(ctx context.Context, ar *arena) error {
	return b.messageFrom(ctx, ar, ar.rivals[0])
}

// messageFromBystander sends the first rival a message of the bystander, who gets the
// receipts.
func (b *bench) messageFromBystander(ctx context.Context, ar *arena) error {
	return b.messageFrom(ctx, ar, ar.people["alice"])
}

func (b *bench) messageFrom(ctx context.Context, ar *arena, from *mecha) error {
	return b.connect(ctx, ar.server, func(c *conn) (err error) {
		ar.target, err = sendOne(c, from, ar.rivals[0], []byte(`{}`))
		return err
	})
}

const (
	slowMessages = 200 // in the mailbox of the slow reader: more than all buffers of a connection hold
	slowPayload  = 64 << 10
)

func largePayload() []byte { return []byte(`{"text":"` + strings.Repeat("x", slowPayload) + `"}`) }

// fillSlow fills the mailbox of the slow reader.
func (b *bench) fillSlow(ctx context.Context, ar *arena) error {
	return b.fill(ctx, ar.server, ar.crowd, ar.people["erin"], slowMessages, largePayload())
}

// fillUnread also fills the mailboxes of the rivals, who do not read theirs.
func (b *bench) fillUnread(ctx context.Context, ar *arena) error {
	err := b.fillSlow(ctx, ar)
	for _, m := range ar.rivals {
		if err == nil {
			err = b.fill(ctx, ar.server, ar.crowd, m, slowMessages, largePayload())
		}
	}
	return err
}

// importProfiles registers the profiles that are searched, and waits until
// searches find them.
func (b *bench) importProfiles(ctx context.Context, ar *arena) error {
	v, put := newVocabulary(), b.putProfiles
	if b.Server != "" { // whose file may be of another version
		put = b.putByCommand
	}
	if err := put(ctx, ar.server, v); err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(4, 4))
	for range 20 {
		ar.queries = append(ar.queries, fmt.Appendf(nil, `{"query":%q}`, v.text(r, 64)))
	}
	return b.connect(ctx, ar.server, func(c *conn) error { return b.awaitProfiles(ctx, c, ar.people["alice"]) })
}

// putByCommand is putProfiles by the server's own program.
func (b *bench) putByCommand(ctx context.Context, s *server, v *vocabulary) error {
	var lines bytes.Buffer
	for i := range b.Profiles {
		p := v.profile(uint64(i))
		fmt.Fprintf(&lines, `{"mecha_id":%q,"profile":%s}`+"\n", profiled(i), p.Stored().Body)
	}
	_, err := b.command(ctx, s, lines.Bytes(), "mecha", "import", "-")
	return err
}
