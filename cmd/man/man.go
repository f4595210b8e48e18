package man

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"relay/cmd/internal/cli"
	"relay/db/relay"
)

func (a *app) manCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "man DIR",
		Short:   "Write the manual pages into a folder",
		Long:    `Write a manual page for every command into a folder, and create the folder if it is missing.`,
		Example: `  relay man ~/.local/share/man/man1 && man relay-message-list`,
		Args:    cli.Exactly(1, "one folder"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			n, err := writePages(cmd.Root(), args[0])
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(map[string]any{"dir": args[0], "files": n})
			}
			_, err = fmt.Fprintf(a.Stdout, "%d pages in %s (man -l %s)\n",
				n, args[0], relay.ShellWord(filepath.Join(args[0], "relay.1")))
			return err
		},
	}
}

// writePages writes the pages of a command and all below it. It returns their number.
func writePages(cmd *cobra.Command, dir string) (int, error) {
	n := 1
	for _, c := range cmd.Commands() {
		if !c.IsAvailableCommand() {
			continue
		}
		below, err := writePages(c, dir)
		if err != nil {
			return n, err
		}
		n += below
	}
	return n, os.WriteFile(filepath.Join(dir, pageName(cmd)+".1"), page(cmd), 0o644)
}

func pageName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// manual is a page in the macros of man(7).
type manual struct{ bytes.Buffer }

// page makes the manual page of one command. It has no date, so that the same
// program always makes the same page.
func page(cmd *cobra.Command) []byte {
	m := &manual{}
	fmt.Fprintf(m, ".TH %s 1 \"\" \"relay %s\" \"relay\"\n.nh\n.ad l\n",
		strings.ToUpper(pageName(cmd)), cli.BuildVersion().Version)
	m.section("NAME")
	fmt.Fprintf(m, "%s \\- %s\n", roff(pageName(cmd)), roff(cmd.Short))
	m.section("SYNOPSIS")
	fmt.Fprintf(m, "\\fB%s\\fP\n", roff(cli.Synopsis(cmd)))
	m.section("DESCRIPTION")
	text := cmd.Long
	if text == "" {
		text = cmd.Short + "."
	}
	m.paragraphs(text)
	if cmd.HasAvailableSubCommands() {
		m.section("COMMANDS")
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() {
				m.item(`\fB`+roff(c.Name())+`\fP`, c.Short)
			}
		}
	}
	cmd.InitDefaultHelpFlag() // merges the flags that every command has
	m.section("OPTIONS")
	cmd.Flags().VisitAll(m.option)
	m.section("ENVIRONMENT")
	m.environment(cmd)
	m.section("EXIT STATUS")
	m.item("0", "The command did what it was asked to do.")
	m.item("1", "It failed. The reason is on stderr.")
	m.item("2", "The command line was wrong. The reason is on stderr.")
	if cmd.Name() == "ask" {
		m.item("3", "There was no answer in time.")
	}
	if cmd.Name() == "serve" {
		m.item("75", "The server could no longer keep what it accepts, and stopped. Start it again.")
	}
	m.section("EXAMPLES")
	m.example(cmd.Example)
	m.section("SEE ALSO")
	m.seeAlso(cmd)
	return m.Bytes()
}

func (m *manual) section(title string) { fmt.Fprintf(m, ".SH %s\n", title) }

// item writes a term and what it means. term may hold roff's own escapes.
func (m *manual) item(term, text string) { fmt.Fprintf(m, ".TP\n%s\n%s\n", term, roff(text)) }

// example writes lines as they are.
func (m *manual) example(text string) { fmt.Fprintf(m, ".nf\n%s\n.fi\n", roff(text)) }

// paragraphs writes a description. A paragraph with an indented line is a list,
// and keeps its lines.
func (m *manual) paragraphs(text string) {
	for paragraph := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		m.WriteString(".PP\n")
		if strings.Contains("\n"+paragraph, "\n ") {
			m.example(paragraph)
		} else {
			m.WriteString(roff(paragraph) + "\n")
		}
	}
}

// option writes a flag as --help shows it: with a placeholder for its value.
func (m *manual) option(f *pflag.Flag) {
	placeholder, text := pflag.UnquoteUsage(f)
	term := `\fB` + roff("--"+f.Name) + `\fP`
	if f.Shorthand != "" {
		term = `\fB` + roff("-"+f.Shorthand) + `\fP, ` + term
	}
	if placeholder != "" {
		term += ` \fI` + roff(placeholder) + `\fP`
	}
	switch f.DefValue {
	case "", "0", "0s", "false", "[]":
	default:
		text += " (default " + f.DefValue + ")"
	}
	m.item(term, text)
}

// environment writes the variables that a command reads.
func (m *manual) environment(cmd *cobra.Command) {
	if cmd.Flags().Lookup("key-file") != nil {
		m.item("RELAY_KEY", "The key, if --key-file does not name a file to read it from.")
		m.item("RELAY_SIGNING_SECRET", "The key's signing secret, if it has one.")
	}
	if cmd.Name() == "serve" {
		m.item("REQUIRE_MESSAGE_SIGNATURE", "Any value that does not mean no turns --require-message-signature on.")
	}
	m.item("NO_COLOR", "Any value turns colours off.")
	m.WriteString(".PP\nEach of these sets a flag; a flag on the command line is stronger:\n.PP\n")
	var all []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" && f.Name != "version" {
			all = append(all, roff(cli.Variable(f)))
		}
	})
	m.WriteString(strings.Join(all, ", ") + "\n")
}

func (m *manual) seeAlso(cmd *cobra.Command) {
	var pages []string
	if cmd.HasParent() {
		pages = append(pages, roff(pageName(cmd.Parent()))+"(1)")
	}
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			pages = append(pages, roff(pageName(c))+"(1)")
		}
	}
	m.WriteString(strings.Join(pages, ", ") + "\n")
}

var roffEscapes = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`)

// roff escapes text, so that a page shows it as it is and no line of it is
// taken for a macro.
func roff(text string) string {
	lines := strings.Split(roffEscapes.Replace(text), "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
