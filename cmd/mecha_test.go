package cmd_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"relay/db"
	"relay/db/relay"

	"github.com/coder/websocket"
)

// mechaLine is a line of mecha list --json, or mecha show.
type mechaLine struct {
	MechaID   string          `json:"mecha_id"`
	CreatedAt time.Time       `json:"created_at"`
	UpdatedAt time.Time       `json:"updated_at"`
	Profile   json.RawMessage `json:"profile"`
	LiveKeys  *int            `json:"live_keys"`
	LastSeen  *time.Time      `json:"last_seen"`
}

func listMechas(t *testing.T, db string) (all []mechaLine) {
	t.Helper()
	for line := range strings.Lines(mustRelay(t, "mecha", "list", "--json", "--db", db)) {
		all = append(all, parse[mechaLine](t, []byte(line)))
	}
	return all
}

func addresses(all []mechaLine) string {
	var names []string
	for _, m := range all {
		names = append(names, m.MechaID)
	}
	return strings.Join(names, " ")
}

// text writes a file and returns its name.
func text(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func wantSameJSON(t *testing.T, got, want string) {
	t.Helper()
	if g, w := parse[any](t, []byte(got)), parse[any](t, []byte(want)); !reflect.DeepEqual(g, w) {
		t.Errorf("got %s, want %s", got, want)
	}
}

// register registers Mechas: each line has the address of one, and its profile. If there is no database,
// it makes one; and if a server runs on it, that server does the work, as for a command.
func register(t testing.TB, path, lines string) {
	t.Helper()
	d, err := db.Open(db.Options{Path: path, Schema: schema(), Create: true})
	if err != nil {
		t.Fatal(err)
	}
	var writing sync.WaitGroup
	for line := range strings.Lines(lines) {
		m := parse[struct {
			MechaID relay.Address `json:"mecha_id"`
			Profile json.RawMessage
		}](t, []byte(line))
		p, err := relay.ReadProfile(m.Profile)
		if err != nil {
			t.Fatal(err)
		}
		writing.Add(1)
		d.PutProfileThen(&relay.PutProfile{At: time.Now(), Address: m.MechaID, Register: true, Profile: p.Stored()}, func(err error) {
			defer writing.Done()
			if err != nil {
				t.Errorf("%s: %v", line, err)
			}
		})
	}
	writing.Wait()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestProfilesAreSetAndShown(t *testing.T) {
	t.Parallel()
	db := tempDB(t)
	issue(t, db, "b^x", "a^x")
	profile := `{"display_name":"A <&> co","description":"plans","tags":["travel","food"],"visibility":"crew","card":{"version":"3","url":"https://a.example"}}`
	shown := `{"display_name":"A <&> co","description":"plans","version":"3","tags":["travel","food"],"visibility":"crew","card":{"version":"3","url":"https://a.example"}}`
	path := text(t, "profile.json", profile)

	if out := mustRelay(t, "mecha", "profile", "set", "a^x", "@"+path, "--db", db); out != "the profile of a^x is set\n" {
		t.Errorf("set prints %q", out)
	}
	got := mustRelay(t, "mecha", "profile", "get", "a^x", "--db", db)
	wantSameJSON(t, got, shown)
	if !strings.Contains(got, "\n  \"display_name\": \"A <&> co\",\n") {
		t.Errorf("for people it is\n%s", got)
	}
	// set reads what get prints: from stdin, with - or without.
	for _, more := range [][]string{nil, {"-"}} {
		mustRelay(t, "mecha", "profile", "set", "a^x", text(t, "empty.json", `{}`), "--db", db)
		wantSameJSON(t, mustRelay(t, "mecha", "profile", "get", "a^x", "--json", "--db", db), `{"visibility":"public"}`)
		r := run(t, append([]string{"mecha", "profile", "set", "a^x", "--json", "--db", db}, more...), nil, got).wantCode(t, 0)
		wantSameJSON(t, r.out, `{"updated":"a^x"}`)
		one := mustRelay(t, "mecha", "profile", "get", "a^x", "--json", "--db", db)
		wantSameJSON(t, one, shown)
		if strings.Count(one, "\n") != 1 {
			t.Errorf("--json prints %q", one)
		}
	}
	show := parse[mechaLine](t, []byte(mustRelay(t, "mecha", "show", "a^x", "--json", "--db", db)))
	wantSameJSON(t, string(show.Profile), shown)
	if show.MechaID != "a^x" || show.CreatedAt.IsZero() || show.UpdatedAt.Before(show.CreatedAt) || show.LiveKeys == nil || *show.LiveKeys != 1 || show.LastSeen != nil {
		t.Errorf("show: %+v", show)
	}
	if all := listMechas(t, db); addresses(all) != "a^x b^x" || !strings.Contains(string(all[0].Profile), `"plans"`) || strings.Contains(string(all[0].Profile), "card") {
		t.Errorf("list: %+v", all)
	}
	lines := strings.Split(mustRelay(t, "mecha", "list", "--db", db), "\n")
	if len(lines) != 4 || !strings.HasPrefix(lines[0], "MECHA ") || !strings.Contains(lines[1], "A <&> co  travel food  crew ") || !strings.Contains(lines[2], "b^x    -         -            public") {
		t.Errorf("list:\n%s", strings.Join(lines, "\n"))
	}
}

func TestAProfileThatIsNotSet(t *testing.T) {
	t.Parallel()
	db := tempDB(t)
	issue(t, db, "a^x")
	mustRelay(t, "mecha", "profile", "set", "a^x", text(t, "p.json", `{"version":"1"}`), "--db", db)
	for _, c := range []struct {
		args, stdin string
		code        int
		says        string
	}{
		{"set a^x", `{"tags":"x"}`, 2, "tags"},
		{"set a^x", `{"tags":[]`, 1, "invalid JSON at byte 10"},
		{"set a^x", strings.Repeat(" ", 64<<10) + `{}`, 1, "64 KiB"},
		{"set a^x /no/such/file", "", 1, "/no/such/file"},
		{"set nobody^x", `{}`, 1, "nobody^x"},
		{"set A^x", `{}`, 1, "A^x"},
		{"set nobody", `{}`, 2, "is not a valid address"},
		{"set", `{}`, 2, "an address"},
		{"get nobody^x", "", 1, "nobody^x"},
		{"get", "", 2, "one address"},
	} {
		r := run(t, append([]string{"mecha", "profile"}, append(strings.Fields(c.args), "--db", db)...), nil, c.stdin).wantCode(t, c.code, c.says)
		if r.out != "" {
			t.Errorf("%s printed %q", c.args, r.out)
		}
	}
	wantSameJSON(t, mustRelay(t, "mecha", "profile", "get", "a^x", "--db", db), `{"version":"1","visibility":"public"}`)
}

func TestANameCannotForgeTheDirectory(t *testing.T) {
	db := tempDB(t)
	issue(t, db, "a^x")
	mustRelay(t, "mecha", "profile", "set", "a^x", text(t, "p.json", `{"display_name":"x\nb^x\u001b[31m\u009b2J\u202e\ty"}`), "--db", db)
	if out := mustRelay(t, "mecha", "list", "--db", db); strings.Count(out, "\n") != 2 || strings.ContainsAny(out, "\x1b\u009b\u202e\t") {
		t.Errorf("%q", out)
	}
}

// set reads what get prints for a large card. Its skills are in there twice, so
// that with spaces for people it would be too long.
func TestALargeCardIsSetAgain(t *testing.T) {
	t.Parallel()
	db := tempDB(t)
	for name, words := range map[string]int{"twice": 55, "spaced": 6} {
		var skills []string
		for i := range 100 {
			tags := strings.TrimSuffix(strings.Repeat(`"x",`, words), ",")
			skills = append(skills, fmt.Sprintf(`{"id":"s%d","description":"%s","tags":[%s]}`, i, strings.Repeat("x", 300), tags))
		}
		card := `{"name":"Large","skills":[` + strings.Join(skills, ",") + `]}`
		register(t, db, `{"mecha_id":"large^x","profile":{"card":`+card+`}}`)
		got := mustRelay(t, "mecha", "profile", "get", "large^x", "--db", db)
		if len(got) < 64<<10 {
			t.Fatalf("%s: only %d bytes", name, len(got))
		}
		run(t, []string{"mecha", "profile", "set", "large^x", "--db", db}, nil, got).wantCode(t, 0)
		wantSameJSON(t, mustRelay(t, "mecha", "profile", "get", "large^x", "--json", "--db", db), got)
	}
}

func TestARemovedMechaIsRefused(t *testing.T) {
	t.Parallel()
	db := tempDB(t)
	keys := issue(t, db, "alice^x", "alice^x", "bob^x")
	alice, spare, bob := keys[0], keys[1], keys[2]
	s := startServer(t, db)
	sent := s.send(alice, "bob^x", `{"n":1}`)
	conn := s.dial(alice, "")
	if out := mustRelay(t, "mecha", "remove", "alice^x", "--db", db); out != "alice^x is removed\n" {
		t.Errorf("it prints %q", out)
	}
	wantClosed(t, conn, websocket.StatusPolicyViolation, soon)
	refusedSoon(s, alice, "key_revoked")
	refusedSoon(s, spare, "key_revoked")
	s.ask(bob, "POST", "/api/v1/messages", `{"to":"alice^x","payload":{}}`).wantProblem(t, 404, "recipient_not_found")
	s.ask(bob, "GET", "/api/v1/mecha/alice^x/profile", "").wantProblem(t, 404, "mecha_not_found")
	if h := s.history(bob, ""); len(h) != 1 || h[0].MessageID != sent.MessageID || h[0].From != "alice^x" {
		t.Errorf("bob has %+v", h)
	}
	runRelay(t, "mecha", "show", "alice^x", "--db", db).wantCode(t, 1, "alice^x")
	runRelay(t, "mecha", "remove", "alice^x", "--db", db).wantCode(t, 1, "alice^x")
	if all := listMechas(t, db); addresses(all) != "bob^x" {
		t.Errorf("list: %+v", all)
	}

	back := issue(t, db, "alice^x")[0]
	if h := s.history(back, ""); len(h) != 1 {
		t.Errorf("it came back with %+v", h)
	}
	s.send(bob, "alice^x", `{}`)
	s.ask(alice, "GET", "/api/v1/whoami", "").wantProblem(t, 401, "key_revoked")
	wantSameJSON(t, mustRelay(t, "mecha", "remove", "bob^x", "--json", "--db", db), `{"removed":"bob^x"}`)
}

func TestMechaCommandsAndAMissingDatabase(t *testing.T) {
	db, profile := tempDB(t), text(t, "profile.json", `{"display_name":"x"}`)
	for _, args := range [][]string{{"list"}, {"show", "a^x"}, {"remove", "a^x"}, {"profile", "get", "a^x"}, {"profile", "set", "a^x", profile}} {
		runIn(t, filepath.Dir(db), append(append([]string{"mecha"}, args...), "--db", "relay.db")...).wantCode(t, 1, "no database at "+db)
	}
	wantFiles(t, filepath.Dir(db))
}
