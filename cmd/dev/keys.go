package dev

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"time"

	"relay/db"
	"relay/db/lock"
	"relay/db/relay"
)

// The demo Mechas of relay serve --dev, and how their keys live.
var demoMechas = [...]relay.Address{"alice^demo", "bob^demo"}

const (
	demoKeyLabel = "dev"
	demoKeyLife  = 7 * 24 * time.Hour
	demoKeyLeft  = 24 * time.Hour // a kept key with less life than this is not shown again
)

// demoKey is a key of a demo Mecha, as it is kept in the file <db>.dev-keys.
type demoKey struct {
	ID   relay.KeyID `json:"key_id"`
	Text string      `json:"key"`

	expires time.Time
}

// demoKeys returns the keys of the demo Mechas. It issues new ones only if the keys of the last start no longer
// work: so an example that was pasted before a restart works after it, and no start adds keys. The store has no
// key's text, so a file next to the database keeps these. Only the server that holds the database calls this.
func demoKeys(ctx context.Context, d *db.DB, log *slog.Logger) (keys map[relay.Address]demoKey, err error) {
	path, now := d.Path()+".dev-keys", time.Now()
	keys, fresh := readDemoKeys(path), false
	for _, address := range demoMechas {
		k := keys[address]
		if k.expires, err = demoKeyEnd(ctx, d, address, k, now); err != nil {
			return nil, err
		}
		if k.expires.IsZero() {
			issued, err := d.Issue(&relay.IssueKey{At: now, Address: address, Label: demoKeyLabel,
				ExpiresAt: now.Add(demoKeyLife)})
			if err != nil {
				return nil, err
			}
			k, fresh = demoKey{issued.ID, issued.Text, issued.ExpiresAt}, true
		}
		keys[address] = k
	}
	if fresh {
		if err := writeDemoKeys(path, keys); err != nil {
			log.Warn("the demo keys are not kept: the next start issues new ones", "error", err)
		}
	}
	return keys, nil
}

// demoKeyEnd returns when a kept key ends; the zero time if a new one must take its
// place.
func demoKeyEnd(ctx context.Context, d *db.DB, of relay.Address, kept demoKey, now time.Time) (time.Time, error) {
	if relay.CheckKeyText(kept.Text) != nil {
		return time.Time{}, nil
	}
	found, err := d.KeysByID(ctx, []relay.KeyID{kept.ID})
	if err != nil || len(found) == 0 {
		return time.Time{}, err
	}
	k := found[0]
	if k.Mecha.Address != of || k.Label != demoKeyLabel || k.Check(now.Add(demoKeyLeft)) != nil {
		return time.Time{}, nil
	}
	return k.ExpiresAt, nil
}

// readDemoKeys reads the file. A file that other users could read or write, or that is
// damaged, counts as none.
func readDemoKeys(path string) map[relay.Address]demoKey {
	keys := map[relay.Address]demoKey{}
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0 && runtime.GOOS != "windows" {
		return keys
	}
	if text, err := os.ReadFile(path); err != nil || json.Unmarshal(text, &keys) != nil || keys == nil {
		return map[relay.Address]demoKey{}
	}
	return keys
}

// writeDemoKeys replaces the file.
func writeDemoKeys(path string, keys map[relay.Address]demoKey) error {
	text, err := json.Marshal(keys)
	if err != nil {
		return err
	}
	if err := lock.Replace(path, append(text, '\n')); err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	return nil
}
