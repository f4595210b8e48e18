package ring

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"relay/cmd/internal/cli"
	"relay/cmd/internal/remote"
	"relay/cmd/internal/show"
	"relay/cmd/setup"
	"relay/db/relay"
	"relay/http/client"
)

// setupFlags are the flags of relay setup.
type setupFlags struct {
	remote.Flags
	dryRun, undo  bool
	project, name string
}

func (a *app) setupCommand() *cobra.Command {
	var f setupFlags
	cmd := &cobra.Command{
		Use:   "setup PROGRAM",
		Short: "Add the relay to the configuration of an agent's program",
		Long: `Add the MCP server relay mcp to the configuration of claude-code, codex, cursor
or vscode, and for claude-code the hook relay hook wait, which wakes an idle
session. It changes the user's configuration or, with --project, the
configuration of a folder.

The key is never written to that configuration. It stays in --key-file, which
only you may be able to read; a key in RELAY_KEY is written to such a file.
--signing-secret-file and --ca-file are passed on as well.

The rest of a file does not change: order, comments, indentation, line ends. A
backup is kept next to it. A file that cannot be parsed is not touched. Running
the command again changes nothing. --undo restores the file byte for byte; if it
has been changed since, only what the relay has added is removed.`,
		Example: `  relay setup claude-code --key-file ~/.config/relay/planner.key
  relay setup vscode --dry-run
  relay setup codex --undo`,
		Args: cli.Exactly(1, "one program: "+strings.Join(setup.Names, ", ")),
		ValidArgsFunction: func(
			_ *cobra.Command, args []string, _ string,
		) (names []cobra.Completion, _ cobra.ShellCompDirective) {
			for _, name := range setup.Names[:len(setup.Names)*(1-min(len(args), 1))] {
				names = append(names, cobra.CompletionWithDesc(name, setup.Title(name)))
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if !slices.Contains(setup.Names, args[0]) {
				return cli.Usagef("unknown program %q%s; known are %s",
					args[0], cli.DidYouMean("", args[0], setup.Names), strings.Join(setup.Names, ", "))
			}
			if f.undo {
				return a.setupUndo(&f, args[0])
			}
			return a.setup(&f, args[0])
		},
	}
	f.Add(cmd)
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "a preview of the changes, which are not made")
	cmd.Flags().BoolVar(&f.undo, "undo", false, "removal of the relay from the configuration")
	cmd.Flags().StringVar(&f.project, "project", "", "a `folder` whose configuration is changed instead of the user's")
	cmd.Flags().StringVar(&f.name, "name", "relay", "the `name` of the server in the configuration")
	return cmd
}

// home is the folder where the programs keep their files, and book the folder where their changes are recorded.
func (f *setupFlags) home() (home setup.Home, book setup.Book, err error) {
	home = setup.Home{System: runtime.GOOS, Getenv: os.Getenv}
	if f.project != "" {
		if home.Project, err = filepath.Abs(f.project); err != nil {
			return home, "", err
		}
		if info, err := os.Stat(home.Project); err != nil || !info.IsDir() {
			return home, "", cli.Usagef("--project: the folder %q does not exist", f.project)
		}
	}
	if home.Dir, err = os.UserHomeDir(); err != nil {
		return home, "", err
	}
	state, err := client.StateDir()
	return home, setup.Book(filepath.Join(state, "relay", "setup")), err
}

func (a *app) setup(f *setupFlags, program string) error {
	home, book, err := f.home()
	if err != nil {
		return err
	}
	server, secrets, err := f.server()
	if err != nil {
		return err
	}
	changes, err := book.Plan(home.Targets(program, server), secrets)
	if err != nil {
		return err
	}
	if !f.dryRun {
		if err := book.Apply(changes, secrets); err != nil {
			return err
		}
	}
	if err := a.printChanges(changes, f.dryRun); err != nil || a.JSON {
		return err
	}
	switch {
	case f.dryRun:
		fmt.Fprintln(a.Stderr, "Nothing was changed.")
	case program == "claude-code":
		fmt.Fprintln(a.Stderr, "Restart Claude Code, then check the setup with relay doctor.")
	default:
		fmt.Fprintf(a.Stderr, "Restart %s, then check the setup with relay doctor. "+
			"%[1]s has no hook that wakes an idle session: "+
			"see relay docs waking.\n", setup.Title(program))
	}
	return nil
}

func (a *app) setupUndo(f *setupFlags, program string) error {
	home, book, err := f.home()
	if err != nil {
		return err
	}
	changes, err := book.PlanUndo(home.Targets(program, setup.Server{Name: f.name}))
	if err != nil {
		return err
	}
	if !f.dryRun {
		if err := book.Apply(changes, nil); err != nil {
			return err
		}
		book.Forget(changes)
	}
	return a.printChanges(changes, f.dryRun)
}

// server describes how a program starts the relay, and the secret files that this needs.
func (f *setupFlags) server() (s setup.Server, secrets []setup.Secret, err error) {
	key, secret, err := f.Secrets()
	if err != nil {
		return s, nil, err
	}
	if err := relay.CheckKeyText(key); err != nil {
		return s, nil, err
	}
	if _, err := client.New(client.Config{URL: f.URL, Key: key, SigningSecret: secret}); err != nil {
		return s, nil, remote.InFlags(err)
	}
	if u, err := url.Parse(f.URL); err != nil || u.User != nil {
		return s, nil, cli.Usagef("--url (RELAY_URL) has a password, which would be written into the configuration")
	}
	s = setup.Server{Name: f.name, Args: []string{"mcp"}, Env: []setup.Field{{Name: "RELAY_URL", Value: f.URL}}}
	hook := []string{"hook", "wait", "--url", f.URL}
	add := func(flag, path string) {
		name := "RELAY_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
		s.Env = append(s.Env, setup.Field{Name: name, Value: path})
		hook = append(hook, "--"+flag, path)
	}
	for _, one := range []struct{ flag, file, text, ending string }{{"key-file", f.KeyFile, key, ".key"},
		{"signing-secret-file", f.SecretFile, secret, ".secret"}} {
		if one.text == "" {
			continue
		}
		path, made, err := keepSecret(one.file, key, one.text, one.ending)
		if err != nil {
			return s, nil, err
		}
		secrets = append(secrets, made...)
		add(one.flag, path)
	}
	if f.CAFile != "" {
		if _, err := f.TLS(); err != nil {
			return s, nil, err
		}
		path, err := filepath.Abs(f.CAFile)
		if err != nil {
			return s, nil, err
		}
		add("ca-file", path)
	}
	if s.Command, err = ownPath(); err != nil {
		return s, nil, err
	}
	s.Hook = hookLine(s.Command, hook)
	for _, text := range append(hook, s.Command) {
		if strings.Contains(text, "${") {
			return s, nil, cli.Usagef("%q has ${, which the program would replace", text)
		}
	}
	return s, secrets, nil
}

// keepSecret returns the file of a secret: the named one, which nobody else may be able to read, or a new one
// of ours, which the caller must write.
func keepSecret(file, key, text, ending string) (path string, made []setup.Secret, err error) {
	if file == "" {
		dir, err := os.UserConfigDir()
		if err != nil {
			return "", nil, err
		}
		sum := sha256.Sum256([]byte(key))
		path = filepath.Join(dir, "relay", "keys", hex.EncodeToString(sum[:6])+ending)
		return path, []setup.Secret{{Path: path, Text: text + "\n"}}, nil
	}
	if path, err = filepath.Abs(file); err != nil {
		return "", nil, err
	}
	return path, nil, readableByOthers(path)
}

// readableByOthers refuses a file with a secret that other users may read.
func readableByOthers(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("others may read %s (mode %04o): chmod 600 %s", path, info.Mode().Perm(), relay.ShellWord(path))
	}
	return nil
}

// ownPath returns the path of this program. A name in the PATH is better than the file that it leads to, which
// the next update may move.
func ownPath() (string, error) {
	own, err := os.Executable()
	if err != nil {
		return "", err
	}
	if strings.Contains(own, string(filepath.Separator)+"go-build") {
		return "", errors.New("this program is go run's temporary binary; build it first, with go build")
	}
	named, err := exec.LookPath("relay")
	if err == nil && filepath.IsAbs(named) && sameFile(named, own) {
		return named, nil
	}
	return own, nil
}

func sameFile(a, b string) bool {
	one, err1 := os.Stat(a)
	two, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(one, two)
}

// hookLine returns the command of a hook, which a shell runs. It begins with exec, since a shell between the
// program and the hook would hide from the hook that the program has ended.
func hookLine(command string, args []string) string {
	if runtime.GOOS == "windows" { // where bash or PowerShell runs it; both take slashes
		line := []string{filepath.ToSlash(command)}
		for _, arg := range args {
			line = append(line, filepath.ToSlash(arg))
		}
		for i, word := range line {
			if strings.ContainsAny(word, " &()'`$;") {
				line[i] = `"` + word + `"`
			}
		}
		return strings.Join(line, " ")
	}
	line := []string{"exec", relay.ShellWord(command)}
	for _, arg := range args {
		line = append(line, relay.ShellWord(arg))
	}
	return strings.Join(line, " ")
}

// changeTexts describes what happened to a file, by setup.Change.What, in two tenses.
var changeTexts = map[string][2]string{
	"create":  {"created", "would be created"},
	"change":  {"changed", "would be changed"},
	"remove":  {"removed: setup had created it", "would be removed: setup had created it"},
	"restore": {"as it was before", "would be as it was before"},
	"clean": {"the relay was removed; the file was changed since setup, and the rest stays",
		"the relay would be removed; the file was changed since setup, and the rest would stay"},
	"nothing": {"nothing to change", "nothing to change"},
}

func (a *app) printChanges(changes []*setup.Change, dryRun bool) error {
	for _, c := range changes {
		tense := map[bool]int{true: 1}[dryRun]
		var err error
		if a.JSON {
			err = a.PrintJSON(struct {
				File    string  `json:"file"`
				Change  string  `json:"change"`
				Backup  *string `json:"backup"`
				DryRun  bool    `json:"dry_run"`
				Preview *string `json:"diff"`
			}{c.Path, c.What, show.Optional(c.Backup), dryRun, show.Optional(map[bool]string{true: c.Diff()}[dryRun])})
		} else {
			text := c.Path + ": " + changeTexts[c.What][tense]
			if c.What == "change" {
				text += "; before: " + c.Backup
			}
			if dryRun && c.What != "nothing" {
				text += "\n" + strings.TrimSuffix(c.Diff(), "\n")
			}
			_, err = fmt.Fprintln(a.Stdout, text)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
