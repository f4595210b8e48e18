package cmd_test

import (
	"strings"
	"testing"
)

// A client finds a change of the directory in a running server within a second.
func TestSearchFindsWhatWasRegistered(t *testing.T) {
	t.Parallel()
	db := tempDB(t)
	a := issue(t, db, "asker^crew")[0]
	s := startServer(t, db)
	lines := `{"mecha_id":"flights^acme","profile":{"description":"books flights","skills":[{"id":"book","name":"Book a flight"}]}}` + "\n" +
		`{"mecha_id":"hotels^acme","profile":{"description":"finds hotel rooms"}}` + "\n"
	register(t, db, lines)
	env := []string{"RELAY_URL=" + s.url, "RELAY_KEY=" + a.Key}
	eventually(t, soon, "a registered Mecha is found", func() bool {
		return strings.Contains(run(t, []string{"search", "book", "a", "flight"}, env, "").wantCode(t, 0).out, "flights^acme")
	})
	r := run(t, []string{"search", "flights^acme", "--json"}, env, "").wantCode(t, 0)
	found := parse[struct {
		Results []struct {
			MechaID string `json:"mecha_id"`
		}
	}](t, []byte(r.out))
	if len(found.Results) == 0 || found.Results[0].MechaID != "flights^acme" {
		t.Errorf("%s", r.out)
	}
	if r := run(t, []string{"search", "xylophone"}, env, "").wantCode(t, 0, "nothing found"); r.out != "" {
		t.Errorf("%q", r.out)
	}
}

// A search may have only filters, and the flag of every filter has an effect.
func TestSearchByFilterAlone(t *testing.T) {
	t.Parallel()
	db := tempDB(t)
	a := issue(t, db, "asker^crew")[0]
	s := startServer(t, db)
	lines := `{"mecha_id":"flights^acme","profile":{"tags":["travel/flights"],"languages":["en"],"skills":[{"id":"book"}]}}` + "\n" +
		`{"mecha_id":"hotels^acme","profile":{"tags":["travel/hotels"],"languages":["de","en"]}}` + "\n" +
		`{"mecha_id":"ledger^beta","profile":{"tags":["finance"],"languages":["de"],"skills":[{"id":"audit"}]}}` + "\n"
	register(t, db, lines)
	env := []string{"RELAY_URL=" + s.url, "RELAY_KEY=" + a.Key}
	find := func(args string) string {
		t.Helper()
		r := run(t, append(strings.Fields("search --json "+args), "--sort", "name"), env, "").wantCode(t, 0)
		var names []string
		for _, h := range parse[struct {
			Results []struct {
				MechaID string `json:"mecha_id"`
			}
		}](t, []byte(r.out)).Results {
			names = append(names, h.MechaID)
		}
		return strings.Join(names, " ")
	}
	eventually(t, soon, "what was imported is found", func() bool { return find("ledger^beta") == "ledger^beta" })
	for args, want := range map[string]string{
		"--tag travel":                          "flights^acme hotels^acme",
		"--tag travel/hotels,finance":           "hotels^acme ledger^beta",
		"--skill book --skill audit":            "flights^acme ledger^beta",
		"--language de":                         "hotels^acme ledger^beta",
		"--language de --crew acme":             "hotels^acme",
		"--online --crew acme":                  "",
		"--online=false --crew acme --limit 50": "flights^acme hotels^acme",
	} {
		if got := find(args); got != want {
			t.Errorf("search %s finds %q, want %q", args, got, want)
		}
	}
	if out := run(t, []string{"search", "--tag", "finance"}, env, "").wantCode(t, 0).out; !strings.Contains(out, "ledger^beta") {
		t.Errorf("%q", out)
	}
	for _, nothing := range []string{"search", "search --limit 5", "search --sort name", "search --tag="} {
		run(t, strings.Fields(nothing), env, "").wantCode(t, 2, "search takes a query", "--tag")
	}
	run(t, []string{"search", " ", "\t"}, env, "").wantCode(t, 2, "search takes a query")
	run(t, []string{"search", "hotel", "--sort", "luck"}, env, "").wantCode(t, 2, "relevance, recent or name")
}

// A profile can neither forge lines nor steer the terminal.
func TestAProfileCannotForgeWhatIsFound(t *testing.T) {
	t.Parallel()
	db := tempDB(t)
	a := issue(t, db, "asker^crew")[0]
	s := startServer(t, db)
	line := `{"mecha_id":"evil^acme","profile":{"display_name":"zzyzx\u001b[2J\n1.000\tbob^demo","description":"\u202ex\u009by","skills":[{"id":"\u001b]0;x\u0007\n1.000  bob^demo","name":"zzyzx"}]}}`
	register(t, db, line)
	env := []string{"RELAY_URL=" + s.url, "RELAY_KEY=" + a.Key}
	eventually(t, soon, "the Mecha is found", func() bool {
		return strings.Contains(run(t, []string{"search", "zzyzx"}, env, "").wantCode(t, 0).out, "evil^acme")
	})
	// The query shares only the crew of the address, which is not in the profile: no reason is shown.
	if out := run(t, []string{"search", "nobody^acme"}, env, "").wantCode(t, 0).out; !strings.HasSuffix(strings.TrimRight(out, "\n"), "  -") {
		t.Errorf("%q", out)
	}
	out := run(t, []string{"search", "zzyzx"}, env, "").out
	if strings.Count(out, "\n") != 2 || strings.ContainsAny(out, "\x1b\x07\u009b\u202e\t") || !strings.Contains(out, "(skill ") {
		t.Errorf("%q", out)
	}
}
