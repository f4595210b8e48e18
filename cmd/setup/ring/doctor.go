package ring

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"relay/cmd/internal/cli"
	"relay/cmd/internal/display"
	"relay/cmd/internal/remote"
	"relay/cmd/internal/show"
	"relay/cmd/setup"
	"relay/db/lock"
	"relay/db/relay"
	"relay/http/client"
)

func (a *app) doctorCommand() *cobra.Command {
	var f setupFlags
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Diagnose the setup and suggest fixes",
		Long: `Check the configuration of Claude Code, Codex, Cursor and VS Code, the relay
that it names, the key, this machine's clock, and the waiting hooks. Nothing is
changed. Each finding is a sentence, with a fix if it is a problem. The exit
code is 1 if there is a problem.`,
		Example: `  relay doctor
  relay doctor --project . --json`,
		Args: cli.Exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.doctor(cmd.Context(), &f) },
	}
	f.Add(cmd)
	cmd.Flags().StringVar(&f.project, "project", "", "a `folder` whose configuration is checked as well")
	cmd.Flags().StringVar(&f.name, "name", "relay", "the `name` of the server in the configurations")
	return cmd
}

// finding is one sentence of the diagnosis.
type finding struct {
	Check string  `json:"check"` // program, key, server, clock, messages or bell
	State string  `json:"state"` // ok, note or problem
	Text  string  `json:"text"`
	Cure  *string `json:"cure"`
}

const (
	doctorTime   = 10 * time.Second   // for all requests to one relay
	clockNote    = 30 * time.Second   // of difference; requests may be refused soon if it grows
	expiryNote   = 7 * 24 * time.Hour // before a key expires
	shownBellAge = 24 * time.Hour     // of a session that does not wait
)

// diagnosis is one run of the doctor.
type diagnosis struct {
	findings []finding
	asked    map[string]bool // relays and keys
	hooked   bool            // a program has the hook
	started  bool            // a program has the server
}

func (e *diagnosis) ok(check, format string, args ...any) {
	e.findings = append(e.findings, finding{check, "ok", fmt.Sprintf(format, args...), nil})
}

func (e *diagnosis) note(check, cure, format string, args ...any) {
	e.findings = append(e.findings, finding{check, "note", fmt.Sprintf(format, args...), show.Optional(cure)})
}

func (e *diagnosis) problem(check, cure, format string, args ...any) {
	e.findings = append(e.findings, finding{check, "problem", fmt.Sprintf(format, args...), show.Optional(cure)})
}

func (a *app) doctor(ctx context.Context, f *setupFlags) error {
	home, _, err := f.home()
	if err != nil {
		return err
	}
	e := &diagnosis{asked: map[string]bool{}}
	places := []setup.Home{home}
	if home.Project != "" {
		places[0].Project = ""
		places = append(places, home)
	}
	for _, place := range places {
		for _, program := range setup.Names {
			e.program(ctx, place, program, f.name)
		}
	}
	if f.KeyFile != "" || os.Getenv("RELAY_KEY") != "" {
		e.relay(ctx, "the environment", f.Flags)
	} else if !e.started && !e.hooked {
		e.problem("key", "Set RELAY_KEY, or run relay setup; relay key create ADDRESS issues a key.",
			"There is no key: RELAY_KEY is not set, and no program is configured.")
	}
	if err := e.bells(); err != nil {
		return err
	}
	return a.printFindings(e.findings)
}

// program checks a program's configuration and the command that it starts.
func (e *diagnosis) program(ctx context.Context, place setup.Home, program, name string) {
	title, flags := setup.Title(program), ""
	if place.Project != "" {
		title, flags = title+" in "+place.Project, " --project "+relay.ShellWord(place.Project)
	}
	again := "Run relay setup " + program + flags + "."
	var server map[string]any
	hook := ""
	for _, found := range place.Look(program, name) {
		switch {
		case found.Problem != nil:
			e.problem("program", "Repair the file; until then, relay setup does not change it.",
				"%s: the configuration cannot be used: %v.", title, found.Problem)
			return
		case found.Server != nil:
			server = found.Server
		case found.Hook != "":
			hook = found.Hook
		}
	}
	e.started, e.hooked = e.started || server != nil, e.hooked || hook != ""
	switch {
	case server == nil && hook == "":
		e.note("program", "", "%s is not configured.", title)
		return
	case server == nil:
		e.problem("program", again, "%s has the hook, but not the MCP server %q.", title, name)
		return
	case hook == "" && program == "claude-code":
		e.problem("program", again, "%s has the MCP server, but not the hook: nothing wakes an idle session.", title)
	}
	command, _ := server["command"].(string)
	env, _ := server["env"].(map[string]any)
	get := func(key string) string { s, _ := env[key].(string); return s }
	if info, err := os.Stat(command); err != nil || info.IsDir() || filepath.Separator == '/' && info.Mode()&0o111 == 0 {
		e.problem("program", again, "%s starts %s, which is not a program.", title, command)
	} else {
		e.ok("program", "%s is configured to start %s mcp.", title, command)
	}
	if hook != "" && !strings.Contains(hook, get("RELAY_KEY_FILE")) {
		e.problem("program", again, "The hook and the MCP server of %s have different keys.", title)
	}
	e.relay(ctx, title, remote.Flags{URL: get("RELAY_URL"), KeyFile: get("RELAY_KEY_FILE"),
		SecretFile: get("RELAY_SIGNING_SECRET_FILE"), CAFile: get("RELAY_CA_FILE")})
}

// relay checks a key and asks the relay about it, once for all programs that use both.
func (e *diagnosis) relay(ctx context.Context, who string, f remote.Flags) {
	id := strings.Join([]string{f.URL, f.KeyFile, f.SecretFile, f.CAFile}, "\x00")
	if e.asked[id] {
		return
	}
	e.asked[id] = true
	for _, file := range []string{f.KeyFile, f.SecretFile} {
		if file == "" {
			continue
		}
		if err := readableByOthers(file); err != nil {
			e.problem("key", "", "The key of %s is not safe: %v.", who, err)
		}
	}
	key, _, err := f.Secrets()
	if err == nil {
		err = relay.CheckKeyText(key)
	}
	if err != nil {
		e.problem("key", "relay key create ADDRESS issues a key; then run relay setup.", "The key of %s cannot be used: %v.",
			who, err)
		return
	}
	c, err := f.Client()
	if err != nil {
		e.problem("server", "", "The relay of %s cannot be reached: %v.", who, err)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, doctorTime)
	defer cancel()
	e.ready(ctx, f)
	e.identity(ctx, who, c)
}

// ready checks whether the server is ready.
func (e *diagnosis) ready(ctx context.Context, f remote.Flags) {
	config, err := f.TLS()
	if err != nil {
		e.problem("server", "", "%v.", err)
		return
	}
	answer, err := remote.AskReady(ctx, f.URL, config)
	at := redacted(f.URL)
	switch {
	case err != nil:
		e.problem("server", "Start it (relay serve), or set RELAY_URL.", "The relay at %s does not answer: %v.",
			at, remote.Advice(err))
	case !answer.Ready:
		e.problem("server", "See the server's log.", "The relay at %s is not ready: %s.", at, relay.Visible(answer.Detail))
	case !answer.Accepting:
		e.problem("server", "Free space on the server's disk.",
			"The relay at %s accepts no messages: its disk is nearly full.",
			at)
	default:
		e.ok("server", "The relay at %s is ready.", at)
	}
}

// identity asks which Mecha the key belongs to, and compares the clocks.
func (e *diagnosis) identity(ctx context.Context, who string, c *client.Client) {
	var me struct {
		MechaID    relay.Address `json:"mecha_id"`
		KeyID      string        `json:"key_id"`
		ExpiresAt  time.Time     `json:"expires_at"`
		ServerTime time.Time     `json:"server_time"`
	}
	began := time.Now()
	err := c.Call(ctx, "GET", "/api/v1/whoami", nil, &me)
	switch {
	case client.Refused(err, relay.TimestampOutOfRange):
		e.problem("clock", "Set this machine's clock.", "The relay refuses the time of this machine: %v.", err)
		return
	case errors.As(err, new(*client.Refusal)) && !client.Temporary(err):
		e.problem("key", "relay key create ADDRESS issues another key; then run relay setup.",
			"The relay refuses the key of %s: %v.", who, remote.Advice(err))
		return
	case err != nil && ctx.Err() == nil && !client.NothingDone(err):
		e.problem("server", "Check that RELAY_URL names a relay.",
			"The relay does not say which Mecha the key of %s belongs to: %v.",
			who, remote.Advice(err))
		return
	case err != nil:
		return // ready has reported it
	}
	own, key := relay.Visible(string(me.MechaID)), relay.Visible(me.KeyID)
	e.ok("key", "The key of %s belongs to %s (%s).", who, own, key)
	if left := time.Until(me.ExpiresAt); !me.ExpiresAt.IsZero() && left < expiryNote {
		e.note("key", "relay key rotate "+key+" issues the next one.", "It expires in %s.", show.Gap(left))
	}
	local := began.Add(time.Since(began) / 2)
	if off := local.Sub(me.ServerTime).Abs(); off > clockNote {
		e.problem("clock", "Set the clocks; at five minutes apart, requests are refused.",
			"This machine's clock and the relay's are %s apart.", show.Gap(off))
	} else {
		e.ok("clock", "This machine's clock agrees with the relay's.")
	}
	var in struct{ Pending int }
	if err := c.Call(ctx, "GET", "/api/v1/mecha/"+string(me.MechaID)+"/inbox", nil, &in); err == nil {
		e.note("messages", "", "%s has %s.", own, show.Count(in.Pending, "pending message"))
	}
}

// bells checks the waiting hooks.
func (e *diagnosis) bells() error {
	dir, err := client.StateDir()
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(dir, "relay", "bells", "*.json"))
	if err != nil {
		return err
	}
	armed := 0
	for _, path := range files {
		kept, err := readBell(path)
		if err != nil || kept.ArmedAt.IsZero() {
			continue
		}
		held, err := lock.File(path + ".lock")
		if err == nil {
			_ = held.Close()
		}
		waits := errors.Is(err, lock.ErrHeld)
		session := "without a name"
		if kept.Session != "" {
			session = fmt.Sprintf("%q", kept.Session)
		}
		who := ""
		if kept.MechaID != "" {
			who = " for " + string(kept.MechaID)
		}
		switch {
		case waits && kept.Outstanding:
			armed++
			e.note("bell", "Acknowledge one of its messages (relay inbox), and the next bell can ring.",
				"The session %s waits%s (process %d), but its last bell, of %s, is not answered yet.",
				session, who, kept.PID, display.At(kept.RungAt))
		case waits:
			armed++
			e.ok("bell", "The session %s waits%s (process %d) since %s.", session, who, kept.PID, display.At(kept.ArmedAt))
		case time.Since(kept.ArmedAt) < shownBellAge:
			e.note("bell", "", "The session %s does not wait%s now; it did from %s on.", session, who, display.At(kept.ArmedAt))
		}
	}
	if e.hooked && armed == 0 {
		e.note("bell", "", "No session waits now. A session of Claude Code waits from the end of its next turn on.")
	}
	return nil
}

func (a *app) printFindings(all []finding) error {
	problems := 0
	for _, f := range all {
		if f.State == "problem" {
			problems++
		}
	}
	if a.JSON {
		if err := a.PrintJSON(struct {
			OK       bool      `json:"ok"`
			Findings []finding `json:"findings"`
		}{problems == 0, all}); err != nil {
			return err
		}
	} else {
		for _, f := range all {
			text := fmt.Sprintf("%-8s %s\n", f.State, f.Text)
			if f.Cure != nil {
				text += fmt.Sprintf("%-8s %s\n", "", *f.Cure)
			}
			if _, err := fmt.Fprint(a.Stdout, text); err != nil {
				return err
			}
		}
	}
	if problems > 0 {
		return cli.ExitFailure
	}
	return nil
}
