package operate

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"relay/cmd/internal/cli"
	"relay/cmd/internal/show"
	"relay/db"
	"relay/db/look"
	"relay/db/relay"
)

func (a *app) keyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "key",
		Short: "Issue, list, revoke and rotate keys",
		Long: `Issue, list, revoke and rotate keys. The commands work on the database file; a
server that runs on it does it for them.`,
		Example: `  relay key create planner^acme
  relay key list`,
	}
	cli.Group(cmd)
	cmd.AddCommand(a.keyCreate(), a.keyList(), a.keyRevoke(), a.keyRotate())
	return cmd
}

func (a *app) keyCreate() *cobra.Command {
	var label, expires string
	var secret, broadcast bool
	cmd := &cobra.Command{
		Use:   "create ADDRESS…",
		Short: "Issue a key; register the Mecha if it is new",
		Long: `Issue a key for each address, and print it. A new Mecha is registered.

The key is shown only once: the database stores its SHA-256. With
--signing-secret, the key also gets its own secret for signatures. The secret is
never sent, but the database stores it, and so do backups.

With --broadcast, the key may write to all Mechas of any crew at once, as in
relay send '*^acme'. Without it, it may do so for its own crew only.`,
		Example: `  relay key create planner^acme
  relay key create planner^acme --label laptop --expires 90d
  export RELAY_KEY=$(relay key create planner^acme --json | jq -r .key)`,
		Args: cli.Between(1, 1<<20, "one or more addresses, as in planner^acme"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			life := time.Duration(0) // the key has no end
			if cmd.Flags().Changed("expires") {
				if life, err = cli.ParseDuration(expires); err != nil {
					return err
				}
			}
			addresses := make([]relay.Address, len(args))
			for i, text := range args {
				if addresses[i], err = relay.ParseAddress(text); err != nil {
					return cli.Plain(err)
				}
			}
			return a.WithDB(a.MayCreate, func(d *db.DB) error {
				for _, address := range addresses {
					i := &relay.IssueKey{At: time.Now(), Address: address, Label: label, WithSecret: secret, Broadcast: broadcast}
					if life > 0 {
						i.ExpiresAt = i.At.Add(life)
					}
					if err := a.issue(d, i); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&label, "label", "", "a `name` for the key, shown in lists")
	cmd.Flags().StringVar(&expires, "expires", "", "`time` after which the key ends, as in 12h or 90d (default never)")
	cmd.Flags().BoolVar(&secret, "signing-secret", false, "issue a signing secret with the key")
	cmd.Flags().BoolVar(&broadcast, "broadcast", false, "permission to write to all Mechas of any crew at once")
	a.CreateFlag(cmd)
	return cmd
}

// issue creates a key and prints it, the only time that it is shown.
func (a *app) issue(d *db.DB, i *relay.IssueKey) error {
	k, err := d.Issue(i)
	if err != nil {
		return cli.Plain(err)
	}
	if err := a.printKey(k); err != nil {
		return fmt.Errorf("the key was issued, but could not be printed: %w; revoke it: relay key revoke %s", err, k.ID)
	}
	if a.JSON {
		return nil
	}
	note := "id " + string(k.ID)
	if !k.ExpiresAt.IsZero() {
		note += ", expires " + relay.FormatTime(k.ExpiresAt)
	}
	_, err = fmt.Fprintf(a.Stderr, "(%s; keep the key now, it is not shown again)\n", note)
	return err
}

// printKey prints the text and the secret of a new key, which nothing shows again.
func (a *app) printKey(k relay.IssuedKey) error {
	if a.JSON {
		return a.PrintJSON(struct {
			KeyID     relay.KeyID   `json:"key_id"`
			MechaID   relay.Address `json:"mecha_id"`
			Key       string        `json:"key"`
			Secret    *string       `json:"signing_secret"`
			CreatedAt string        `json:"created_at"`
			ExpiresAt *string       `json:"expires_at"`
		}{k.ID, k.Mecha.Address, k.Text, show.Optional(k.Secret), relay.FormatTime(k.CreatedAt),
			show.OptionalTime(k.ExpiresAt)})
	}
	text := fmt.Sprintf("%s  %s\n", k.Mecha.Address, k.Text)
	if k.Secret != "" {
		text += fmt.Sprintf("%s  %s\n", strings.Repeat(" ", len(k.Mecha.Address)), k.Secret)
	}
	_, err := io.WriteString(a.Stdout, text)
	return err
}

func (a *app) keyList() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list [ADDRESS]",
		Short: "List the keys of all Mechas, or of one",
		Long:  `List the keys of all Mechas, or of one. LAST USED may be a minute old.`,
		Example: `  relay key list
  relay key list planner^acme --json`,
		Args: cli.Between(0, 1, "at most one address"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var of relay.Address
			if len(args) == 1 {
				var err error
				if of, err = relay.ParseAddress(args[0]); err != nil {
					return cli.Plain(err)
				}
			}
			return a.WithInspector(func(in *look.Inspector) error {
				keys, err := in.KeysOf(of)
				if err != nil {
					return err
				}
				return a.printKeys(keys)
			})
		},
	}
	a.DBFlag(cmd)
	return cmd
}

var keyColour = map[string]show.Colour{"live": show.Green, "revoked": show.Red, "expired": show.Grey}

func (a *app) printKeys(keys []*relay.Key) error {
	var w *show.Table
	if !a.JSON {
		w = show.NewTable(a.Stdout, "KEY ID", "MECHA", "LABEL", show.Heading("STATE"), "CREATED", "EXPIRES", "LAST USED")
	}
	for _, k := range keys {
		state := "live"
		if err := k.Check(time.Now()); err != nil {
			state = strings.TrimPrefix(string(relay.ErrorCode(err)), "key_")
		}
		if !a.JSON {
			w.Row(k.ID, k.Mecha.Address, show.Dash(k.Label), keyColour[state].Paint(state), show.TimeOrDash(k.CreatedAt),
				show.TimeOrDash(k.ExpiresAt), show.TimeOrDash(k.LastUsedAt))
			continue
		}
		err := a.PrintJSON(struct {
			KeyID      relay.KeyID   `json:"key_id"`
			MechaID    relay.Address `json:"mecha_id"`
			Label      string        `json:"label"`
			State      string        `json:"state"`
			HasSecret  bool          `json:"has_signing_secret"`
			Broadcast  bool          `json:"may_broadcast"`
			CreatedAt  string        `json:"created_at"`
			ExpiresAt  *string       `json:"expires_at"`
			RevokedAt  *string       `json:"revoked_at"`
			LastUsedAt *string       `json:"last_used_at"`
		}{k.ID, k.Mecha.Address, k.Label, state, k.Secret != "", k.Broadcast, relay.FormatTime(k.CreatedAt),
			show.OptionalTime(k.ExpiresAt), show.OptionalTime(k.RevokedAt), show.OptionalTime(k.LastUsedAt)})
		if err != nil {
			return err
		}
	}
	return w.End()
}

func (a *app) keyRevoke() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "revoke KEY_ID",
		Short: "End a key at once",
		Long: `End a key at once. A server that runs on the database refuses the key and closes
its sockets within a second. relay key list shows the ids of keys.`,
		Example: "  relay key revoke key_7h2k9d0m4qx1w8zt",
		Args:    cli.Exactly(1, "one key id (relay key list)"),
		RunE: func(_ *cobra.Command, args []string) error {
			id, err := keyID(args[0])
			if err != nil {
				return err
			}
			return a.WithDB(false, func(d *db.DB) error {
				if err := d.Revoke(&relay.RevokeKey{At: time.Now(), ID: id}); err != nil {
					return cli.Plain(err)
				}
				if a.JSON {
					return a.PrintJSON(map[string]relay.KeyID{"revoked": id})
				}
				_, err := fmt.Fprintf(a.Stdout, "%s is revoked\n", id)
				return err
			})
		},
	}
	a.DBFlag(cmd)
	return cmd
}

func (a *app) keyRotate() *cobra.Command {
	var overlap string
	cmd := &cobra.Command{
		Use:   "rotate KEY_ID",
		Short: "Issue a successor to a key; the old one ends after the overlap",
		Long: `Issue a successor to a key, for the same Mecha and with the same label. The old
key ends after the overlap, so that clients can switch without a gap.

If the old key has a signing secret, the successor gets a new one. The successor
is valid for as long as the old key was issued for. Rotation moves the old key's
end, so rotate the newest key, not one that was already rotated.`,
		Example: `  relay key rotate key_7h2k9d0m4qx1w8zt --overlap 24h`,
		Args:    cli.Exactly(1, "one key id (relay key list)"),
		RunE: func(_ *cobra.Command, args []string) error {
			id, err := keyID(args[0])
			if err != nil {
				return err
			}
			duration, err := cli.ParseDuration(overlap)
			if err != nil {
				return err
			}
			return a.WithDB(false, func(d *db.DB) error {
				return a.issue(d, &relay.IssueKey{At: time.Now(), Replaces: id, Overlap: duration})
			})
		},
	}
	cmd.Flags().StringVar(&overlap, "overlap", "24h",
		"`time` for which both keys work, as in 24h or 7d; 0 ends the old key now")
	a.DBFlag(cmd)
	return cmd
}

// keyID reads the id of a key. The error does not repeat the text: it may be the
// key itself, pasted by mistake.
func keyID(text string) (relay.KeyID, error) {
	if !strings.HasPrefix(text, "key_") {
		return "", cli.Usagef("that is not a key id: a key id begins with key_ (relay key list)")
	}
	return relay.KeyID(text), nil
}
