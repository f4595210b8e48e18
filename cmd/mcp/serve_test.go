package mcp_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"relay/cmd/mcp"
	"relay/http/client"
)

// patience is how long a test waits for what must happen. It does not measure speed.
const patience = 2 * time.Minute

// session is Serve with a client that writes lines and reads lines.
type session struct {
	t      testing.TB
	in     *io.PipeWriter
	lines  chan string
	ended  chan error
	refuse func() // has the relay answer 401 to what it has taken and will take
}

// mustServe serves a client for a relay that takes requests and does not answer until refuse is called.
func mustServe(t testing.TB, retry time.Duration) *session {
	t.Helper()
	refused := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-refused:
			w.WriteHeader(http.StatusUnauthorized)
		case <-r.Context().Done():
		}
	}))
	api, err := client.New(client.Config{URL: silent.URL, Key: "mk_x"})
	if err != nil {
		t.Fatal(err)
	}
	in, write := io.Pipe()
	read, out := io.Pipe()
	s := &session{t, write, make(chan string, 10), make(chan error, 1), sync.OnceFunc(func() { close(refused) })}
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(func() { stop(); write.Close(); read.Close(); s.refuse(); silent.Close() })
	go func() { s.ended <- mcp.Serve(ctx, api, retry, in, out, "dev"); out.Close() }()
	go func() {
		for lines := bufio.NewScanner(read); lines.Scan(); {
			s.lines <- lines.Text()
		}
	}()
	s.write(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`)
	s.read(`"id":0`)
	s.write(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return s
}

func (s *session) write(line string) {
	s.t.Helper()
	if _, err := fmt.Fprintln(s.in, line); err != nil {
		s.t.Fatal(err)
	}
}

// read reads a line that has all the texts.
func (s *session) read(texts ...string) {
	s.t.Helper()
	select {
	case line := <-s.lines:
		for _, text := range texts {
			if !strings.Contains(line, text) {
				s.t.Fatalf("%s lacks %s", line, text)
			}
		}
	case <-time.After(patience):
		s.t.Fatalf("no line with %q", texts)
	}
}

// A relay that takes a request and does not answer costs a call not much more than --retry.
func TestARelayThatIsSilentHoldsUpNoTool(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, arguments string
		says            []string
	}{
		{"check_inbox", `{}`, []string{"unreachable"}},
		{"send_message", `{"to":"a^b","payload":{}}`, []string{"unreachable", "idempotency_key"}},
		{"send_message", `[]`, []string{"invalid_arguments", "arguments must not be a JSON array"}},
	} {
		t.Run(c.name+" "+c.arguments, func(t *testing.T) {
			t.Parallel()
			s := mustServe(t, 50*time.Millisecond)
			s.write(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + c.name + `","arguments":` + c.arguments + `}}`)
			s.read(append(c.says, `"id":1`)...)
		})
	}
}

// A line that is not a message is answered, and neither the session nor a call under way ends.
func TestALineThatIsNoMessageEndsNothing(t *testing.T) {
	t.Parallel()
	s := mustServe(t, time.Hour) // the call waits until the relay refuses it, however long the lines take
	s.write(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"check_inbox","arguments":{}}}`)
	for line, code := range map[string]string{"hello": "-32700", `{"jsonrpc":"2.0","id":2,`: "-32700", `{"id":2,"method":"ping"}`: "-32600", `[]`: "-32600", `17`: "-32600",
		`{"jsonrpc":"2.0","id":{},"method":"ping"}`: "-32600", `{}{}`: "-32700", `{"jsonrpc":"2.0","id":2,"method":"` + strings.Repeat("x", 15<<20) + `"}`: "-32600"} {
		s.write(line)
		s.read(`"id":null`, code)
	}
	s.write("\r\n")
	s.write(`{"jsonrpc":"2.0","id":3,"method":"ping"}` + "\r")
	s.read(`"id":3`, `"result":{}`)
	s.refuse()
	s.read(`"id":1`, "the relay does not accept this agent's key")
	s.in.Close()
	select {
	case err := <-s.ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("the session does not end with its input")
	}
}
