package cmd

import (
	"fmt"
	"io"
	nethttp "net/http"
	"net/textproto"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

func (a *app) curlCommand() *cobra.Command {
	var c credentials
	var headers []string
	var include bool
	cmd := &cobra.Command{
		Use:   "curl METHOD PATH [BODY|-|@FILE]",
		Short: "Send one signed request and print the answer",
		Long: `Send one signed request to the relay at --url with the key in RELAY_KEY, and
print the body of the answer. The exit code is 1 if the status is not 2xx.`,
		Example: `  relay curl GET /api/v1/whoami
  relay curl POST /api/v1/messages '{"to":"bob^demo","payload":{"text":"hello"}}'
  relay curl POST /api/v1/messages @message.json -H 'Idempotency-Key: order-17'`,
		Args: between(2, 3, "a method, a path and at most one body"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := c.client()
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
				return usagef("the path begins with /, as in /api/v1/whoami")
			}
			resp, answer, err := client.do(cmd.Context(), strings.ToUpper(args[0]), args[1], body, more)
			if err != nil {
				return err
			}
			return a.printAnswer(resp, answer, include)
		},
	}
	c.flags(cmd)
	cmd.Flags().StringArrayVarP(&headers, "header", "H", nil, "another `header`, as in 'Idempotency-Key: 17'")
	cmd.Flags().BoolVarP(&include, "include", "i", false, "print the status and the headers too")
	return cmd
}

func (a *app) printAnswer(resp *nethttp.Response, answer []byte, include bool) error {
	if include {
		fmt.Fprintf(a.stdout, "%s %s\n", resp.Proto, resp.Status)
		resp.Header.Write(a.stdout)
		fmt.Fprintln(a.stdout)
	}
	a.stdout.Write(answer)
	if n := len(answer); n > 0 && answer[n-1] != '\n' {
		fmt.Fprintln(a.stdout)
	}
	if resp.StatusCode/100 != 2 && resp.StatusCode != nethttp.StatusNotModified {
		if !include {
			fmt.Fprintf(a.stderr, "relay: %s\n", resp.Status)
		}
		return exitError(exitFailure)
	}
	return nil
}

func (a *app) signCommand() *cobra.Command {
	var c credentials
	cmd := &cobra.Command{
		Use:   "sign [BODY|-|@FILE]",
		Short: "Print the headers of one signed request, with this body",
		Long: `Print the four headers that authenticate one request with this body. They hold
for one request, for as long as the relay's --clock-skew; the key is among them.`,
		Example: `  body='{"to":"bob^demo","payload":{"text":"hello"}}'
  relay sign "$body" | curl -H @- -d "$body" "$RELAY_URL/api/v1/messages"`,
		Args: between(0, 1, "at most one body"),
		RunE: func(_ *cobra.Command, args []string) error {
			client, err := c.signer()
			if err != nil {
				return err
			}
			body, err := a.bodyArgument(args)
			if err != nil {
				return err
			}
			h := client.headers(body)
			if a.json {
				flat := map[string]string{}
				for name := range h {
					flat[name] = h.Get(name)
				}
				return a.printJSON(flat)
			}
			for _, name := range []string{"X-Mecha-Key", "X-Request-Timestamp", "X-Nonce", "X-Signature"} {
				fmt.Fprintf(a.stdout, "%s: %s\n", name, h.Get(name))
			}
			return nil
		},
	}
	c.keyFlag(cmd)
	return cmd
}

// bodyArgument gives the body that an argument means: its own text, - for
// stdin, @FILE for a file. The bytes are taken as they are.
func (a *app) bodyArgument(args []string) ([]byte, error) {
	switch {
	case len(args) == 0:
		return nil, nil
	case args[0] == "-":
		return io.ReadAll(a.stdin)
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
			return nil, usagef("%q is no header, as in 'Name: value'", line)
		}
		name = textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(name))
		h[name] = append(h[name], strings.TrimSpace(value))
	}
	return h, nil
}
