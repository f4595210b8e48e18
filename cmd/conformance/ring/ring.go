// Package ring is the command relay conformance, which tests programs and servers by package conformance: its
// flags, and the table of the results.
package ring

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"relay/cmd/conformance"
	"relay/cmd/internal/cli"
	"relay/cmd/internal/display"
	"relay/cmd/internal/remote"
	"relay/cmd/internal/show"
	"relay/db/relay"
)

func init() {
	cli.Register(cli.Ring{Name: "conformance", Commands: cli.Commands("agents", (*app).command)})
}

type app struct{ *cli.App }

// checkFlags are the flags of relay conformance.
type checkFlags struct {
	remote.Flags
	only           []string
	role           string
	timeout        time.Duration
	list, vectors  bool
	first, second  string // addresses, when a server is tested
	secondKeyFile  string
	programs, urls []string // the arguments after --, and before it
}

func (a *app) command() *cobra.Command {
	f := &checkFlags{}
	cmd := &cobra.Command{
		Use:   "conformance (-- PROGRAM [ARGUMENT…] | URL)",
		Short: "Test a client program or a server against the protocol",
		Long: `Test a client program in any language, or a server.

With -- PROGRAM, each case starts a relay on a temporary database, behind a
proxy that misbehaves on purpose: it drops connections, cuts sockets, refuses
with Retry-After, pushes twice or is slow. The program is started as

  PROGRAM worker      answers each {"n": i} with {"echo": i}, until SIGTERM
  PROGRAM asker N     asks RELAY_TO {"n": i}, for i from 1 to N, and prints i
                      when its answer has come

with RELAY_URL and RELAY_KEY in its environment. The database decides in the
end: no message may be lost or handled twice. relay docs conformance has the
whole contract. With --role, the program plays one of the two roles, and the
test kit the other.

With URL, a server is tested against the interface document. This needs the keys
of two Mechas, in RELAY_KEY and RELAY_SECOND_KEY, or in --key-file and
--second-key-file, and their addresses if the server has no whoami. It sends
about 300 messages between the two. Checks marked "beyond" test what only this
relay's own protocol has; they do not make a server fail.`,
		Example: `  relay conformance -- python3 agent.py
  relay conformance --only lost-answer,restart -- ./agent --quiet
  relay conformance --role worker -- node worker.mjs
  relay conformance http://127.0.0.1:8080 --first alice^demo --second bob^demo
  relay conformance --list`,
		RunE: func(cmd *cobra.Command, args []string) error {
			f.urls = args
			if at := cmd.ArgsLenAtDash(); at >= 0 {
				f.urls, f.programs = args[:at], args[at:]
			}
			return a.check(cmd.Context(), f)
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.only, "only", nil, "only these `cases` or checks")
	flags.BoolVar(&f.list, "list", false, "a list of the cases and checks, without testing")
	flags.BoolVar(&f.vectors, "vectors", false, "vectors for signing, without testing")
	flags.StringVar(&f.role, "role", "", "of a program: its role, `asker` or worker; default: both")
	flags.DurationVar(&f.timeout, "timeout", time.Minute, "of a program: the time for each case")
	flags.StringVar(&f.first, "first", "", "of a server: the `address` of the Mecha of RELAY_KEY")
	flags.StringVar(&f.second, "second", "", "of a server: the `address` of the Mecha of RELAY_SECOND_KEY")
	flags.StringVar(&f.secondKeyFile, "second-key-file", "",
		"read the second key from a `file` instead of RELAY_SECOND_KEY")
	flags.StringVar(&f.CAFile, "ca-file", "", "a PEM `file` of certificates to trust in addition to the system's")
	f.AddKey(cmd)
	return cmd
}

func (a *app) check(ctx context.Context, f *checkFlags) error {
	switch {
	case f.list:
		return a.list()
	case f.vectors:
		return a.printVectors()
	case len(f.programs) > 0 && len(f.urls) == 0:
		return a.checkProgram(ctx, f)
	case len(f.programs) == 0 && len(f.urls) == 1 && isURL(f.urls[0]):
		return a.checkServer(ctx, f)
	case len(f.programs) == 0 && len(f.urls) > 0:
		return cli.Usagef("a program comes after --, as in relay conformance -- %s; "+
			"a server is a URL that begins with http:// or https://", relay.Visible(strings.Join(f.urls, " ")))
	}
	return cli.Usagef("conformance takes either the URL of a server, or -- and a program")
}

func isURL(s string) bool { return strings.HasPrefix(s, "http://") || strings.HasPrefix(s, "https://") }

// list prints the cases and checks.
func (a *app) list() error {
	type entry struct {
		Name    string `json:"name"`
		Of      string `json:"of"` // program or server
		Section string `json:"section,omitempty"`
		Beyond  bool   `json:"beyond,omitempty"`
		Does    string `json:"does,omitempty"` // what the relay does
		Must    string `json:"must"`
	}
	var all []entry
	for _, c := range conformance.Cases() {
		all = append(all, entry{Name: c.Name, Of: "program", Does: c.Does, Must: c.Must})
	}
	for _, c := range conformance.Checks() {
		all = append(all, entry{Name: c.Name, Of: "server", Section: c.Section, Beyond: c.Beyond, Must: c.Must})
	}
	for _, e := range all {
		if a.JSON {
			if err := a.PrintJSON(e); err != nil {
				return err
			}
			continue
		}
		about := "the relay " + e.Does
		if e.Of == "server" {
			about = e.Section
		}
		fmt.Fprintf(a.Stdout, "%s  %s (%s)\n    %s\n", e.Of, e.Name, about, e.Must)
	}
	return nil
}

// printVectors prints a line of JSON for each vector.
func (a *app) printVectors() error {
	for _, v := range conformance.Vectors() {
		if err := a.PrintJSON(v); err != nil {
			return err
		}
	}
	return nil
}

// knownNames refuses names of --only that do not exist.
func knownNames(only, names []string) error {
	for _, o := range only {
		if !slices.Contains(names, o) {
			return cli.Usagef("--only: unknown name %q%s (relay conformance --list has them all)",
				o, cli.DidYouMean("", o, names))
		}
	}
	return nil
}

func (a *app) checkProgram(ctx context.Context, f *checkFlags) error {
	var names []string
	for _, c := range conformance.Cases() {
		names = append(names, c.Name)
	}
	if err := knownNames(f.only, names); err != nil {
		return err
	}
	if f.role != "" && f.role != conformance.Asker && f.role != conformance.Worker {
		return cli.Usagef("--role must be asker or worker, not %q", f.role)
	}
	if f.timeout < time.Second {
		return cli.Usagef("--timeout must be at least 1s")
	}
	executable, err := os.Executable()
	if err != nil {
		return err
	}
	status := display.NewStatusLine(a.Stderr)
	results, err := conformance.CheckClient(ctx, conformance.Config{Program: f.programs, Role: f.role, Only: f.only,
		Timeout: f.timeout, Relay: executable, Schema: a.Schema, By: a.Actor(),
		Progress: func(ended, all int) { status.Show(fmt.Sprintf("%d of %d cases", ended, all)) }})
	status.Show("")
	if errors.Is(err, context.Canceled) {
		return errors.New("interrupted; nothing is left behind")
	}
	if err != nil {
		return err
	}
	return a.printResults("case", results)
}

// printResults prints a table of results. It returns exit code 1 if a check has failed.
func (a *app) printResults(what string, results []conformance.Result) error {
	failed := 0
	for _, r := range results {
		if r.Failed() {
			failed++
		}
	}
	var err error
	if a.JSON {
		err = a.PrintJSON(struct {
			Passed  bool                 `json:"passed"`
			Failed  int                  `json:"failed"`
			Results []conformance.Result `json:"results"`
		}{failed == 0, failed, results})
	} else {
		err = a.printVerdicts(what, results, failed)
	}
	if err == nil && failed > 0 {
		err = cli.ExitFailure
	}
	return err
}

func (a *app) printVerdicts(what string, results []conformance.Result, failed int) error {
	t := show.NewTable(a.Stdout, strings.ToUpper(what), show.Heading("PASSED"), "WHY")
	for _, r := range results {
		verdict, why := show.Green.Paint("yes"), ""
		switch {
		case r.Skipped != "":
			verdict, why = show.Grey.Paint("skipped"), r.Skipped
		case !r.Passed && r.Beyond:
			verdict = show.Yellow.Paint("no, beyond")
		case !r.Passed:
			verdict = show.Red.Paint("no")
		}
		if r.Section != "" {
			r.Name += "  " + r.Section
		}
		if len(r.Why) > 0 {
			why = r.Why[0]
		}
		t.Row(r.Name, verdict, why)
		for _, more := range r.Why[min(1, len(r.Why)):] {
			t.Row("", show.Heading(""), more)
		}
	}
	if err := t.End(); err != nil {
		return err
	}
	if failed == 0 {
		_, err := fmt.Fprintf(a.Stdout, "\n%s, none failed\n", show.Count(len(results), what))
		return err
	}
	fmt.Fprintf(a.Stdout, "\n%d of %s failed. What to fix:\n", failed, show.Count(len(results), what))
	for _, r := range results {
		if r.Failed() {
			fmt.Fprintf(a.Stdout, "  %s: %s\n", r.Name, r.Must)
		}
	}
	return nil
}

// checkServer tests a server. Its keys come from the environment or files.
func (a *app) checkServer(ctx context.Context, f *checkFlags) error {
	var names []string
	for _, c := range conformance.Checks() {
		names = append(names, c.Name)
	}
	if err := knownNames(f.only, names); err != nil {
		return err
	}
	first, err := f.firstCredentials()
	if err != nil {
		return err
	}
	second, err := f.secondCredentials()
	if err != nil {
		return err
	}
	trust, err := f.TLS()
	if err != nil {
		return err
	}
	status := display.NewStatusLine(a.Stderr)
	results, err := conformance.CheckServer(ctx, conformance.ServerConfig{URL: f.urls[0], TLS: trust, First: first,
		Second: second, Only: f.only, Progress: status.Show})
	status.Show("")
	if err != nil {
		return remote.InFlags(err)
	}
	return a.printResults("check", results)
}

// firstCredentials reads the credentials of the first Mecha, as every client does.
func (f *checkFlags) firstCredentials() (conformance.Credentials, error) {
	key, secret, err := f.Secrets()
	return conformance.Credentials{Address: relay.Address(f.first), Key: key, Secret: secret}, err
}

// secondCredentials reads the credentials of the second Mecha, from separate variables.
func (f *checkFlags) secondCredentials() (conformance.Credentials, error) {
	key := os.Getenv("RELAY_SECOND_KEY")
	if f.secondKeyFile != "" {
		b, err := os.ReadFile(f.secondKeyFile)
		if err != nil {
			return conformance.Credentials{}, err
		}
		key = string(b)
	}
	if key = strings.TrimSpace(key); key == "" {
		return conformance.Credentials{}, cli.Usagef("no second key: set RELAY_SECOND_KEY, or --second-key-file")
	}
	return conformance.Credentials{Address: relay.Address(f.second), Key: key,
		Secret: strings.TrimSpace(os.Getenv("RELAY_SECOND_SIGNING_SECRET"))}, nil
}
