package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// with has rings for the length of a test.
func with(t *testing.T, list ...Ring) {
	t.Helper()
	kept := rings
	t.Cleanup(func() { rings = kept })
	rings = nil
	for _, r := range list {
		Register(r)
	}
}

func named(group, name string) Command {
	return Command{Group: group, Make: func(a *App) *cobra.Command {
		return &cobra.Command{Use: name, RunE: func(*cobra.Command, []string) error {
			_, err := a.Stdout.Write([]byte(name))
			return err
		}}
	}}
}

// panics returns what f panics with; "" if it does not.
func panics(f func()) (said string) {
	defer func() { said, _ = recover().(string) }()
	f()
	return ""
}

func TestRingsThatAreInEachOthersWayPanicAtTheStart(t *testing.T) {
	core := []Command{named("server", "serve")}
	for _, c := range []struct {
		why   string
		rings []Ring
		want  string
	}{
		{"two rings of one name", []Ring{{Name: "bell"}, {Name: "bell"}}, "two rings are named bell"},
		{"one command in two rings", []Ring{
			{Name: "bell", Commands: []Command{named("agents", "ring")}},
			{Name: "gong", Commands: []Command{named("agents", "ring")}},
		}, "the command ring "},
		{"a command of the core", []Ring{{Name: "bell", Commands: []Command{named("agents", "serve")}}}, "the command serve "},
		{"the command help", []Ring{{Name: "bell", Commands: []Command{named("agents", "help")}}}, "the command help "},
		{"a group that there is not", []Ring{{Name: "bell", Commands: []Command{named("bells", "ring")}}}, `the group "bells"`},
		{"nothing", []Ring{
			{Name: "bell", Commands: []Command{named("agents", "ring")}},
			{Name: "gong", Commands: []Command{named("agents", "gong")}},
		}, ""},
	} {
		t.Run(c.why, func(t *testing.T) {
			with(t)
			said := panics(func() {
				for _, r := range c.rings {
					Register(r)
				}
				(&App{}).Assemble(&cobra.Command{Use: "relay"}, core)
			})
			if !strings.Contains(said, c.want) || (said == "") != (c.want == "") {
				t.Errorf("panicked with %q, want %q", said, c.want)
			}
		})
	}
}

// A ring has commands of its own, and adds a flag to one of another, if that is there.
func TestARingAddsCommandsAndFlags(t *testing.T) {
	loud := false
	add := func(_ *App, cmd *cobra.Command) { cmd.Flags().BoolVar(&loud, "loud", false, "") }
	below := func(parent, name string) Command {
		c := named("", name)
		c.Under = parent
		return c
	}
	alone := below("chime", "now")
	alone.Group = "agents"
	with(t, Ring{Name: "bell", Commands: []Command{below("ring", "twice"), named("agents", "ring"), below("gong", "once"), alone},
		Extend: map[string]func(*App, *cobra.Command){"serve": add, "gong": add, "serve twice": add}})
	run := func(args ...string) (out, failed string, code int) {
		var stdout, stderr bytes.Buffer
		a := &App{Stdout: &stdout, Stderr: &stderr}
		root := &cobra.Command{Use: "relay"}
		a.Assemble(root, []Command{named("server", "serve")})
		code = a.Run(t.Context(), root, args)
		return stdout.String(), stderr.String(), code
	}
	if out, failed, code := run("ring"); out != "ring" || code != 0 {
		t.Errorf("ring: %q, %q, %d", out, failed, code)
	}
	if out, failed, code := run("ring", "twice"); out != "twice" || code != 0 {
		t.Errorf("ring twice: %q, %q, %d", out, failed, code)
	}
	if out, failed, code := run("chime", "now"); out != "now" || code != 0 {
		t.Errorf("chime now: %q, %q, %d", out, failed, code)
	}
	if out, failed, code := run("serve", "--loud"); out != "serve" || code != 0 || !loud {
		t.Errorf("serve --loud: %q, %q, %d", out, failed, code)
	}
	if _, failed, code := run("gong"); code != exitUsage || !strings.Contains(failed, `no command "gong"`) {
		t.Errorf("gong: %q, %d", failed, code)
	}
}
