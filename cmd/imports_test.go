package cmd_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

func TestImport(t *testing.T) {
	db := tempDB(t)
	long := `{"mecha_id":"long^x","profile":{"details":"` + strings.Repeat("x", 1<<20) + `"}}`
	lines := strings.Join([]string{
		`{"mecha_id":"a^x","profile":{"display_name":"A"}}`,
		``,
		`{"mecha_id":"b^x"}` + "\r",
		`nonsense`,
		`{"mecha_id":"nobody","profile":{}}`,
		`{"mecha_id":"c^x","profile":{"tags":"x"}}`,
		long,
		`{"mecha_id":"A^x","profile":{}}`,
		"{\"mecha_id\":\"d^x\",\"profile\":{\"x\":\"\xff\"}}",
		`{"mecha_id":"e^x","profile":{"tags":["last"]}}`, // without a line end
	}, "\n")
	r := run(t, []string{"mecha", "import", "-", "--create", "--json", "--db", db}, nil, lines)
	r.wantCode(t, 1, "line 4: not of the form", "line 5: ", "line 6: tags", "line 7: longer than", "line 8: A^x differs", "line 9: invalid JSON")
	wantSameJSON(t, r.out, `{"imported":3,"failed":6}`)
	if strings.Count(r.err, "\n") != 6 {
		t.Errorf("stderr:\n%s", r.err)
	}
	if all := listMechas(t, db); addresses(all) != "a^x b^x e^x" {
		t.Errorf("list: %+v", all)
	}
	if out := mustRelay(t, "key", "list", "--db", db); strings.Contains(out, "^x") {
		t.Errorf("it issued keys:\n%s", out)
	}
	// A second import replaces the profile.
	again := text(t, "again.jsonl", `{"mecha_id":"a^x","profile":{"version":"2"}}`+"\n")
	if out := mustRelay(t, "mecha", "import", again, "--db", db); !strings.HasPrefix(out, "1 imported, 0 failed, ") {
		t.Errorf("it prints %q", out)
	}
	wantSameJSON(t, mustRelay(t, "mecha", "profile", "get", "a^x", "--db", db), `{"version":"2","visibility":"public"}`)
}

func TestImportOfMany(t *testing.T) {
	notShort(t)
	t.Parallel()
	db := tempDB(t)
	s := startServer(t, db) // next to a server
	a := issue(t, db, "asker^x")[0]
	var lines strings.Builder
	many := rounds(t, 1200, 11_500)
	for i := range many {
		fmt.Fprintf(&lines, `{"mecha_id":"m%d^many","profile":{"description":"number %d"}}`+"\n", i, i)
	}
	wantSameJSON(t, mustRelay(t, "mecha", "import", text(t, "many.jsonl", lines.String()), "--json", "--db", db), fmt.Sprintf(`{"imported":%d,"failed":0}`, many))
	if n := len(listMechas(t, db)); n != many+1 {
		t.Errorf("the directory has %d", n)
	}
	got := parse[struct{ Description string }](t, s.ask(a, "GET", fmt.Sprintf("/api/v1/mecha/m%d^many/profile", many-1), "").want(t, 200))
	if got.Description != fmt.Sprint("number ", many-1) {
		t.Errorf("the server has %+v", got)
	}
}

func TestImportOfAnAgentCard(t *testing.T) {
	t.Parallel()
	db := tempDB(t)
	card := "../db/relay/testdata/card-geo.json"
	out := mustRelay(t, "mecha", "import", card, "--as", "geo^maps", "--create", "--db", db)
	if out != "geo^maps is imported, with 2 skills\n" {
		t.Errorf("it prints %q", out)
	}
	p := parse[struct {
		Name   string `json:"display_name"`
		Skills []struct{ ID string }
		Card   map[string]any
	}](t, []byte(mustRelay(t, "mecha", "profile", "get", "geo^maps", "--db", db)))
	if p.Name != "GeoSpatial Route Planner Agent" || len(p.Skills) != 2 || p.Skills[0].ID != "route-optimizer-traffic" || p.Card["provider"] == nil {
		t.Errorf("%+v", p)
	}
	r := run(t, []string{"mecha", "import", "-", "--as", "small^maps", "--json", "--db", db}, nil, `{"name":"Small"}`).wantCode(t, 0)
	wantSameJSON(t, r.out, `{"imported":1,"failed":0}`)
	run(t, []string{"mecha", "import", "-", "--as", "bad^maps", "--db", db}, nil, `{"name":1}`).wantCode(t, 2, "card.name")
	run(t, []string{"mecha", "import", "-", "--as", "bad^maps", "--db", db}, nil, `{},"visibility":"crew"`).wantCode(t, 1, "invalid JSON at byte 2")
	run(t, []string{"mecha", "import", "-", "--as", "bad", "--db", db}, nil, `{}`).wantCode(t, 2, "is not a valid address")
	if all := listMechas(t, db); addresses(all) != "geo^maps small^maps" {
		t.Errorf("list: %+v", all)
	}
}

func TestAnImportAndAMissingDatabase(t *testing.T) {
	db, card := tempDB(t), text(t, "card.json", `{"name":"x"}`)
	runRelay(t, "mecha", "import", "/no/such/file", "--db", db).wantCode(t, 1, "/no/such/file")
	runRelay(t, "mecha", "import", "--db", db).wantCode(t, 2, "one file")
	runRelay(t, "mecha", "import", card, "--as", "x", "--db", db).wantCode(t, 2, "is not a valid address")
	wantFiles(t, filepath.Dir(db))
	runRelay(t, "mecha", "import", card, "--as", "a^x", "--db", db).wantCode(t, 1, "no database at "+db)
	wantFiles(t, filepath.Dir(db))
	mustRelay(t, "mecha", "import", card, "--as", "a^x", "--create", "--db", db)
	wantFiles(t, filepath.Dir(db), "relay.db")
	wantWrongUsage(t, "mecha import", "relay mecha import")
}

// Many writes are one act in the audit log, which says what became of them; a restore keeps it.
func TestTheAuditLogTellsOfAnImport(t *testing.T) {
	t.Parallel()
	db, backup := tempDB(t), filepath.Join(t.TempDir(), "backup.db")
	issue(t, db, "a^audit")
	s := startServer(t, db)
	mustRelay(t, "backup", backup, "--db", db)
	lines := text(t, "mechas.jsonl", `{"mecha_id":"c^audit","profile":{}}`+"\n"+`{"mecha_id":"no address"}`+"\n")
	runRelay(t, "mecha", "import", lines, "--db", db).wantCode(t, 1)
	s.end()
	want := []string{"key create: key_issued", "mecha import: import_begun", "mecha import: import_ended"}
	acts := audit(t, db)
	wantWhats(t, acts, want...)
	if acts[2].Detail != "1 imported, 1 failed" {
		t.Errorf("%+v", acts[2])
	}
	mustRelay(t, "restore", backup, "--db", db, "--force")
	wantWhats(t, audit(t, db), append(want, "restore: restored")...)
}
