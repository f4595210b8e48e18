package cmd

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"relay/cmd/internal/cli"
	"relay/db"
	"relay/db/relay"
	"relay/http"
)

func (a *app) completionCommand() *cobra.Command {
	group := &cobra.Command{
		Use:   "completion",
		Short: "Print completions for bash, zsh, fish or PowerShell",
		Long: `Print a script that teaches a shell to complete relay's commands and flags. It
also completes addresses, key ids and message ids, which it reads from the
database: that of --db, of RELAY_DB, or relay.db. Bash needs the package
bash-completion.`,
		Example: "  source <(relay completion bash)",
	}
	cli.Group(group)
	for _, s := range []struct {
		name, shell, now, forever string
		write                     func(root *cobra.Command, w io.Writer, descriptions bool) error
	}{
		{"bash", "bash", "source <(relay completion bash)",
			"relay completion bash > /etc/bash_completion.d/relay", (*cobra.Command).GenBashCompletionV2},
		{"zsh", "zsh", "source <(relay completion zsh)", `relay completion zsh > "${fpath[1]}/_relay"`, zshCompletion},
		{"fish", "fish", "relay completion fish | source",
			"relay completion fish > ~/.config/fish/completions/relay.fish", (*cobra.Command).GenFishCompletion},
		{"powershell", "PowerShell", "relay completion powershell | Out-String | Invoke-Expression",
			"relay completion powershell >> $PROFILE", powershellCompletion},
	} {
		bare := false
		c := &cobra.Command{
			Use:     s.name,
			Short:   "Print completions for " + s.shell,
			Long:    "Print completions for " + s.shell + ". The first example loads them into the running\nshell, the second into every new one.",
			Example: "  " + s.now + "\n  " + s.forever,
			Args:    cli.Exactly(0, "no arguments"),
			RunE:    func(cmd *cobra.Command, _ []string) error { return s.write(cmd.Root(), a.Stdout, !bare) },
		}
		c.Flags().BoolVar(&bare, "no-descriptions", false, "complete without descriptions")
		group.AddCommand(c)
	}
	return group
}

func zshCompletion(root *cobra.Command, w io.Writer, descriptions bool) error {
	if descriptions {
		return root.GenZshCompletion(w)
	}
	return root.GenZshCompletionNoDesc(w)
}

func powershellCompletion(root *cobra.Command, w io.Writer, descriptions bool) error {
	if descriptions {
		return root.GenPowerShellCompletionWithDesc(w)
	}
	return root.GenPowerShellCompletion(w)
}

// A chooser lists the values from the database that an argument or flag may
// have, and that begin with a prefix.
type chooser func(in *db.Inspector, prefix string) ([]db.Choice, error)

var (
	addressChoices   chooser = (*db.Inspector).AddressChoices
	keyChoices       chooser = (*db.Inspector).KeyChoices
	messageChoices   chooser = func(in *db.Inspector, _ string) ([]db.Choice, error) { return in.MessageChoices() }
	messageOrAddress chooser = func(in *db.Inspector, prefix string) ([]db.Choice, error) {
		list, err := in.AddressChoices(prefix)
		if err != nil || len(list) > 0 && prefix != "" {
			return list, err
		}
		messages, err := in.MessageChoices()
		return append(list, messages...), err
	}
	conversationChoices chooser = func(in *db.Inspector, _ string) ([]db.Choice, error) { return in.ConversationChoices() }
)

// argumentChoices has the words of usage lines for keys, flagChoices and
// wordChoices the names of flags.
var (
	argumentChoices = map[string]chooser{"ADDRESS": addressChoices, "TO": addressChoices, "KEY_ID": keyChoices, "ID": messageChoices, "ID|ADDRESS": messageOrAddress}
	flagChoices     = map[string]chooser{"mecha": addressChoices, "peer": addressChoices, "as": addressChoices,
		"conversation": conversationChoices, "before": messageChoices, "after": messageChoices, "in-reply-to": messageChoices}
	wordChoices = map[string][]string{"state": stateWords, "direction": {"in", "out", "all"}, "priority": {"low", "normal", "high", "urgent"},
		"log-format": logFormats, "log-level": logLevels}
)

// teachChoices gives every command the completions of its arguments and flags.
// Its usage line says which arguments it takes.
func (a *app) teachChoices(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		a.teachChoices(c)
	}
	if words := strings.Fields(cmd.Use); len(words) > 1 && cmd.ValidArgsFunction == nil {
		cmd.ValidArgsFunction = a.arguments(words[1:])
	}
	for name, choose := range flagChoices {
		if cmd.Flags().Lookup(name) != nil {
			_ = cmd.RegisterFlagCompletionFunc(name, a.choices(choose))
		}
	}
	for name, words := range wordChoices {
		if cmd.Flags().Lookup(name) != nil {
			_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
		}
	}
}

// arguments completes by the words of a usage line: ADDRESS, [ADDRESS], ADDRESS…
func (a *app) arguments(usage []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		n := len(args)
		if last := len(usage) - 1; n > last && strings.HasSuffix(usage[last], "…") {
			n = last
		}
		if n >= len(usage) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		word := strings.Trim(usage[n], "[]…")
		if strings.Contains(word, "FILE") || word == "DIR" {
			return nil, cobra.ShellCompDirectiveDefault
		}
		if word == "CODE" {
			return errorCodes(begun), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
		}
		choose := argumentChoices[word]
		if cmd.Name() == "conversation" {
			choose = conversationChoices
		}
		if choose == nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return a.choices(choose)(cmd, args, begun)
	}
}

// errorCodes completes the codes of the API's errors.
func errorCodes(begun string) (all []cobra.Completion) {
	for _, c := range relay.Codes {
		if !strings.HasPrefix(string(c.Code), begun) {
			continue
		}
		all = append(all, cobra.CompletionWithDesc(string(c.Code), fmt.Sprintf("%d %s", http.Status(c.Code), c.Meaning)))
	}
	return all
}

// choices completes from the database. If that fails, there are no completions:
// a shell has no place for an error.
func (a *app) choices(choose chooser) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		_ = cli.FromEnvironment(cmd.Flags())
		path := a.DBPath
		if cmd.Flags().Lookup("db") == nil { // a client's command; the database may be on this machine all the same
			if path = os.Getenv("RELAY_DB"); path == "" {
				path = "relay.db"
			}
		}
		in, err := db.Inspect(path)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer in.Close()
		list, err := choose(in, begun)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var found []cobra.Completion
		for _, c := range list {
			if strings.HasPrefix(c.Value, begun) {
				found = append(found, cobra.CompletionWithDesc(c.Value, relay.Visible(c.About)))
			}
		}
		return found, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}
