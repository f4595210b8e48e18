package cmd_test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
)

func TestDevForMachines(t *testing.T) {
	db := tempDB(t)
	s := serveHere(t, db, "--dev", "--json")
	v := parse[map[string]string](t, []byte(s.await(s.stdout, `(?s).*\n`)[0]))
	if v["url"] != s.url || v["db"] != db {
		t.Errorf("%v; the server is at %s with %s", v, s.url, db)
	}
	for _, address := range []string{"alice^demo", "bob^demo"} {
		a := agent{Address: address, Key: v[address]}
		who := parse[map[string]any](t, s.ask(a, "GET", "/api/v1/whoami", "").want(t, 200))
		if who["mecha_id"] != address || who["expires_at"] == nil {
			t.Errorf("%v", who)
		}
	}
}

func TestDevIsYesOrNo(t *testing.T) {
	wantSuggestion(t, "serve --dev=perhaps", `--dev: "perhaps" is not true or false`)
	runAlone(t, []string{"serve", "--db", tempDB(t)}, []string{"RELAY_DEV=perhaps"}).wantCode(t, 2, "RELAY_DEV", "perhaps", "Try: relay serve --help")
}

// keyIDs returns the ids of the keys in a database.
func keyIDs(t *testing.T, db string) (ids []string) {
	for line := range strings.Lines(mustRelay(t, "key", "list", "--json", "--db", db)) {
		ids = append(ids, parse[struct {
			ID string `json:"key_id"`
		}](t, []byte(line)).ID)
	}
	return ids
}

// A start shows the keys of the start before and adds none, so that pasted commands still
// work. It replaces a key that no longer works, and only that key.
func TestDevKeepsItsKeys(t *testing.T) {
	t.Parallel()
	db := tempDB(t)
	file := db + ".dev-keys"
	start := func() map[string]string {
		t.Helper()
		s := serveHere(t, db, "--dev", "--json")
		v := parse[map[string]string](t, []byte(s.await(s.stdout, `(?s).*\n`)[0]))
		for _, address := range []string{"alice^demo", "bob^demo"} {
			s.ask(agent{Address: address, Key: v[address]}, "GET", "/api/v1/whoami", "").want(t, 200)
		}
		s.end()
		return v
	}
	differ := func(a, b map[string]string) string {
		return fmt.Sprint(a["alice^demo"] != b["alice^demo"], a["bob^demo"] != b["bob^demo"], len(keyIDs(t, db)))
	}
	first := start()
	if again := start(); differ(first, again) != "false false 2" {
		t.Errorf("the second start: alice's key, bob's key differ, and keys: %s", differ(first, again))
	}
	if info, err := os.Stat(file); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	mustRelay(t, "key", "revoke", keyIDs(t, db)[0], "--db", db)
	second := start()
	if differ(first, second) != "true false 3" {
		t.Errorf("after alice's key was revoked: %s", differ(first, second))
	}
	for name, spoil := range map[string]func() error{
		"removed": func() error { return os.Remove(file) },
		"damaged": func() error { return os.WriteFile(file, []byte("null"), 0o600) },
		"of others": func() error {
			return os.WriteFile(file, []byte(`{"alice^demo":{"key_id":"key_x","key":"mk_x"}}`), 0o600)
		},
	} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		before, n := second, len(keyIDs(t, db))
		if second = start(); differ(before, second) != fmt.Sprint(true, true, n+2) {
			t.Errorf("%s: %s", name, differ(before, second))
		}
	}
	if runtime.GOOS == "windows" {
		return
	}
	if err := os.Chmod(file, 0o644); err != nil { // others have seen the keys
		t.Fatal(err)
	}
	if third := start(); third["alice^demo"] == second["alice^demo"] {
		t.Error("keys that others may have read are shown again")
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}
