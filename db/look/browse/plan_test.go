package browse_test

import (
	"strings"
	"testing"

	"relay/db/dbtest"
	"relay/db/look/browse"
)

// Reading the state of a Mecha costs its rows alone.
func TestTheStateOfAMechaIsReadByIndexes(t *testing.T) {
	number := int64(1)
	in := open(t, dbtest.Open(t).Path())
	for _, q := range []struct {
		text string
		args []any
		want []string
	}{
		{browse.MechaHealth, []any{number, number}, []string{"SEARCH k USING INDEX mecha_key_mecha (mecha=?)",
			"SEARCH u USING INTEGER PRIMARY KEY (rowid=?)"}},
		{browse.SentItself, []any{number}, []string{"SEARCH m USING INTEGER PRIMARY KEY (rowid=?)",
			"SEARCH k USING INTEGER PRIMARY KEY (rowid=?)", "SEARCH key_use USING INTEGER PRIMARY KEY (rowid=?)"}},
	} {
		plan := dbtest.Plan(t, in, q.text, q.args...)
		for _, want := range q.want {
			if !strings.Contains(plan, want) {
				t.Errorf("the plan lacks %q:\n%s", want, plan)
			}
		}
		if strings.Contains(plan, "SCAN ") {
			t.Errorf("a whole table is read:\n%s", plan)
		}
	}
}

// open opens a file for reading until the end of the test.
func open(t *testing.T, path string) browse.Inspector {
	t.Helper()
	in, err := browse.Inspect(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	return in
}
