package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	nethttp "net/http"
	"net/textproto"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"relay/cmd/internal/cli"
	"relay/cmd/internal/remote"
	"relay/cmd/internal/show"
	"relay/http/client"
)

func (a *app) curlCommand() *cobra.Command {
	var c remote.Flags
	var headers []string
	var include bool
	cmd := &cobra.Command{
		Use:   "curl METHOD PATH [BODY|-|@FILE]",
		Short: "Send one signed request and print the response",
		Long: `Send one signed request to the relay at --url with the key in RELAY_KEY, and
print the body of the response: byte for byte, but on a terminal JSON is
indented. The exit code is 1 if the status is not 2xx.`,
		Example: `  relay curl GET /api/v1/whoami
  relay curl POST /api/v1/messages '{"to":"bob^demo","payload":{"text":"hello"}}'
  relay curl POST /api/v1/messages @message.json -H 'Idempotency-Key: order-17'`,
		Args: cli.Between(2, 3, "a method, a path and at most one body"),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := c.Client()
			if err != nil {
				return err
			}
			body, err := a.bodyArgument(args[2:])
			if err != nil {
				return err
			}
			more, err := parseHeaders(headers)
			if err != nil {
				return err
			}
			if !strings.HasPrefix(args[1], "/") {
				return cli.Usagef("the path must begin with /, as in /api/v1/whoami")
			}
			resp, err := api.Do(cmd.Context(), strings.ToUpper(args[0]), args[1], body, more)
			if errors.Is(err, client.ErrInvalidRequest) {
				return cli.Usagef("%w", err)
			}
			if err != nil {
				return err
			}
			return a.printAnswer(resp, include)
		},
	}
	c.Add(cmd)
	cmd.Flags().StringArrayVarP(&headers, "header", "H", nil, "an additional `header`, as in 'Idempotency-Key: 17'")
	cmd.Flags().BoolVarP(&include, "include", "i", false, "status and headers in the output")
	return cmd
}

func (a *app) printAnswer(resp *client.Response, include bool) error {
	status := fmt.Sprintf("%d %s", resp.Status, nethttp.StatusText(resp.Status))
	if include {
		fmt.Fprintf(a.Stdout, "%s %s\n", resp.Proto, status)
		resp.Header.Write(a.Stdout)
		fmt.Fprintln(a.Stdout)
	}
	body := resp.Body
	if show.OnScreen(a.Stdout) && len(body) > 0 {
		body = a.forPeople(body)
	}
	if _, err := a.Stdout.Write(body); err != nil {
		return err
	}
	if resp.Err() != nil && resp.Status != nethttp.StatusNotModified {
		if !include {
			fmt.Fprintf(a.Stderr, "relay: %s\n", status)
		}
		return cli.ExitFailure
	}
	return nil
}

// forPeople returns a body for a terminal: JSON is indented unless --json is set, and a line feed ends the
// text.
func (a *app) forPeople(body []byte) []byte {
	var b bytes.Buffer
	if a.JSON || json.Indent(&b, body, "", "  ") != nil {
		b.Reset()
		b.Write(body)
	}
	return append(bytes.TrimSuffix(b.Bytes(), []byte("\n")), '\n')
}

func (a *app) signCommand() *cobra.Command {
	var c remote.Flags
	var request string
	cmd := &cobra.Command{
		Use:   "sign [BODY|-|@FILE]",
		Short: "Print the headers of one signed request, with this body",
		Long: `Print the four headers that authenticate one request with this body. They are
valid for one request, within the relay's --clock-skew. One of them is the key.
With --request there is a fifth, X-Request-Signature, which makes them valid for
that method and path only.`,
		Example: `  body='{"to":"bob^demo","payload":{"text":"hello"}}'
  relay sign "$body" | curl -H @- -d "$body" "$RELAY_URL/api/v1/messages"
  relay sign --request 'POST /api/v1/messages' "$body"`,
		Args: cli.Between(0, 1, "at most one body"),
		RunE: func(_ *cobra.Command, args []string) error {
			signer, err := c.Signer()
			if err != nil {
				return err
			}
			body, err := a.bodyArgument(args)
			if err != nil {
				return err
			}
			h := signer.Header(body)
			if request != "" {
				method, target, ok := strings.Cut(request, " ")
				if !ok || !strings.HasPrefix(target, "/") {
					return cli.Usagef("--request must be a method and a path, as in 'POST /api/v1/messages'")
				}
				h = signer.RequestHeader(strings.ToUpper(method), target, body)
			}
			return a.printSigned(h)
		},
	}
	c.AddKey(cmd)
	cmd.Flags().StringVar(&request, "request", "", "`method and path` to sign as well, as in 'POST /api/v1/messages'")
	return cmd
}

func (a *app) printSigned(h nethttp.Header) error {
	if a.JSON {
		flat := map[string]string{}
		for name := range h {
			flat[name] = h.Get(name)
		}
		return a.PrintJSON(flat)
	}
	for _, name := range []string{"X-Mecha-Key", "X-Request-Timestamp", "X-Nonce", "X-Signature", "X-Request-Signature"} {
		if h.Get(name) != "" {
			fmt.Fprintf(a.Stdout, "%s: %s\n", name, h.Get(name))
		}
	}
	return nil
}

// bodyArgument returns the body that an argument names: its own text, stdin for -, or a file for @FILE, byte
// for byte.
func (a *app) bodyArgument(args []string) ([]byte, error) {
	switch {
	case len(args) == 0:
		return nil, nil
	case args[0] == "-":
		return io.ReadAll(a.Stdin)
	case strings.HasPrefix(args[0], "@"):
		return os.ReadFile(args[0][1:])
	}
	return []byte(args[0]), nil
}

func parseHeaders(lines []string) (nethttp.Header, error) {
	h := nethttp.Header{}
	for _, line := range lines {
		name, value, ok := strings.Cut(line, ":")
		if !ok || strings.TrimSpace(name) == "" {
			return nil, cli.Usagef("%q is not a valid header, as in 'Name: value'", line)
		}
		name = textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(name))
		h[name] = append(h[name], strings.TrimSpace(value))
	}
	return h, nil
}
