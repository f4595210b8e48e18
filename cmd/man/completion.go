package man

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"relay/cmd/internal/cli"
	"relay/db/look/browse"
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
			Use:   s.name,
			Short: "Print completions for " + s.shell,
			Long: "Print completions for " + s.shell +
				". The first example loads them into the running\nshell, the second into every new one.",
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

// A chooser lists up to maxChoices values from the database that an argument or flag may have.
// It may leave out those that do not begin with a prefix.
type chooser func(in browse.Inspector, prefix string) ([]choice, error)

// A choice is a value, with a few words about it.
type choice struct{ value, about string }

const maxChoices = 200

func addressChoices(in browse.Inspector, prefix string) (list []choice, err error) {
	all, err := in.Addresses(prefix, maxChoices)
	for _, a := range all {
		list = append(list, choice{string(a), ""})
	}
	return list, err
}

// keyChoices lists the newest keys that are not revoked.
func keyChoices(in browse.Inspector, prefix string) (list []choice, err error) {
	keys, err := in.KeysOf("")
	for _, k := range slices.Backward(keys) {
		if len(list) == maxChoices || !k.RevokedAt.IsZero() || !strings.HasPrefix(string(k.ID), prefix) {
			continue
		}
		about := string(k.Mecha.Address)
		if k.Label != "" {
			about += ", " + k.Label
		}
		list = append(list, choice{string(k.ID), about})
	}
	return list, err
}

var (
	messageChoices      = ofNewest(func(m *relay.Message) string { return string(m.ID) })
	conversationChoices = ofNewest(func(m *relay.Message) string { return string(m.Conversation) })
)

// ofNewest returns a chooser of what value returns of the newest messages.
func ofNewest(value func(*relay.Message) string) chooser {
	return func(in browse.Inspector, _ string) (list []choice, err error) {
		messages, _, err := in.Messages(context.Background(), browse.ListQuery{Limit: maxChoices})
		seen := map[string]bool{}
		for _, m := range messages {
			if v := value(m); !seen[v] {
				seen[v] = true
				list = append(list,
					choice{v, fmt.Sprintf("%s → %s, %s, %s", m.From, m.To, m.State, m.CreatedAt.UTC().Format(time.DateTime))})
			}
		}
		return list, err
	}
}

func messageOrAddress(in browse.Inspector, prefix string) ([]choice, error) {
	list, err := addressChoices(in, prefix)
	if err != nil || len(list) > 0 && prefix != "" {
		return list, err
	}
	messages, err := messageChoices(in, prefix)
	return append(list, messages...), err
}

// argumentChoices has the words of usage lines for keys, flagChoices and
// wordChoices the names of flags.
var (
	argumentChoices = map[string]chooser{"ADDRESS": addressChoices, "TO": addressChoices, "KEY_ID": keyChoices,
		"ID": messageChoices, "ID|ADDRESS": messageOrAddress}
	flagChoices = map[string]chooser{"mecha": addressChoices, "peer": addressChoices, "as": addressChoices,
		"conversation": conversationChoices, "before": messageChoices, "after": messageChoices, "in-reply-to": messageChoices}
	wordChoices = map[string][]string{"direction": {"in", "out", "all"}, "priority": {"low", "normal", "high", "urgent"},
		"log-format": cli.LogFormats, "log-level": cli.LogLevels}
)

// teachChoices adds to every command below cmd the completions of its arguments and flags.
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
		if cmd.Flags().Lookup("db") == nil { // a client's command; the database may be on this machine anyway
			if path = os.Getenv("RELAY_DB"); path == "" {
				path = "relay.db"
			}
		}
		in, err := browse.Inspect(path)
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
			if strings.HasPrefix(c.value, begun) {
				found = append(found, cobra.CompletionWithDesc(c.value, relay.Visible(c.about)))
			}
		}
		return found, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}
