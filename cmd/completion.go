package cmd

import (
	"os"
	"strings"

	"github.com/spf13/cobra"

	"relay/db"
)

// teachCompletion gives cobra's completion commands the manners of ours, and
// every command's arguments and flags their choices.
func (a *app) teachCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	group, _, _ := root.Find([]string{"completion"}) // it was just made
	group.Short = "Completions for bash, zsh, fish and PowerShell"
	group.Long = `Completions for bash, zsh, fish and PowerShell: of commands and flags, and of
addresses, key ids and message ids, which are read from the database (--db,
RELAY_DB or relay.db). Bash needs the package bash-completion.`
	group.Example = "  source <(relay completion bash)"
	onlyGroups(group)
	for _, c := range group.Commands() {
		c.Args = exactly(0, "no arguments")
		switch c.Name() {
		case "fish":
			c.Example = "  relay completion fish | source"
		case "powershell":
			c.Example = "  relay completion powershell | Out-String | Invoke-Expression"
		default:
			c.Example = "  source <(" + c.CommandPath() + ")"
		}
	}
	a.teachChoices(root)
}

// choosing lists what something can be that begins as given.
type choosing func(*db.Inspector, string) ([]db.Choice, error)

var (
	addressChoices choosing = (*db.Inspector).AddressChoices
	keyChoices     choosing = (*db.Inspector).KeyChoices
	messageChoices choosing = func(in *db.Inspector, _ string) ([]db.Choice, error) { return in.MessageChoices() }
	talkChoices    choosing = func(in *db.Inspector, _ string) ([]db.Choice, error) { return in.ConversationChoices() }
)

// argumentChoices are by the words of usage lines, flagChoices by flag.
var (
	argumentChoices = map[string]choosing{"ADDRESS": addressChoices, "TO": addressChoices, "KEY_ID": keyChoices, "ID": messageChoices}
	flagChoices     = map[string]choosing{"mecha": addressChoices, "peer": addressChoices, "as": addressChoices,
		"conversation": talkChoices, "before": messageChoices, "after": messageChoices}
	wordChoices = map[string][]string{"state": stateWords, "direction": {"in", "out", "all"}, "priority": {"low", "normal", "high", "urgent"},
		"log-format": {"text", "json"}}
)

// teachChoices goes through the commands: a usage line says what its arguments are.
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

// arguments completes by the usage line's words: ADDRESS, [ADDRESS], ADDRESS…
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
		choose := argumentChoices[word]
		if cmd.Name() == "conversation" {
			choose = talkChoices
		}
		if choose == nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return a.choices(choose)(cmd, args, begun)
	}
}

// choices asks the database. Whatever goes wrong, there is nothing to choose from.
func (a *app) choices(choose choosing) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		_ = fromEnvironment(cmd.Flags())
		path := a.dbPath
		if cmd.Flags().Lookup("db") == nil { // a client: the database may be here all the same
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
				found = append(found, cobra.CompletionWithDesc(c.Value, harmless(c.About)))
			}
		}
		return found, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}
