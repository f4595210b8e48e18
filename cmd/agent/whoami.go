package agent

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"relay/cmd/internal/cli"
	"relay/cmd/internal/remote"
	"relay/cmd/internal/show"
)

func (a *app) whoamiCommand() *cobra.Command {
	var c remote.Flags
	cmd := &cobra.Command{
		Use:   "whoami",
		Short: "Show which Mecha RELAY_KEY belongs to",
		Long:  "Ask the relay which Mecha RELAY_KEY belongs to. If this works, address, key and clock are right.",
		Example: `  relay whoami
  relay whoami --json | jq -r .mecha_id`,
		Args: cli.Exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			api, err := c.Client()
			if err != nil {
				return err
			}
			var answer json.RawMessage
			if err := api.Call(cmd.Context(), "GET", "/api/v1/whoami", nil, &answer); err != nil {
				return err
			}
			return a.printWhoami(answer)
		},
	}
	c.Add(cmd)
	return cmd
}

func (a *app) printWhoami(answer []byte) error {
	if a.JSON {
		_, err := fmt.Fprintf(a.Stdout, "%s\n", answer)
		return err
	}
	var who struct {
		MechaID           string `json:"mecha_id"`
		KeyID             string `json:"key_id"`
		Label             string
		ExpiresAt         string `json:"expires_at"`
		SignatureRequired bool   `json:"signature_required"`
	}
	if err := json.Unmarshal(answer, &who); err != nil {
		return err
	}
	signatures := "optional"
	if who.SignatureRequired {
		signatures = "required"
	}
	w := show.NewTable(a.Stdout, "Mecha", who.MechaID)
	w.Row("key", who.KeyID)
	w.Row("label", show.Dash(who.Label))
	w.Row("expires", show.Dash(who.ExpiresAt))
	w.Row("signatures", signatures)
	return w.End()
}
