package look_test

import (
	"strings"
	"testing"

	"relay/db/dbtest"
	"relay/db/look"
)

// What is read of a Mecha costs its rows alone.
func TestTheStateOfAMechaIsReadByIndexes(t *testing.T) {
	number := int64(1)
	in, err := look.Inspect(dbtest.Open(t).Path())
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	for _, q := range []struct {
		text string
		args []any
		want []string
	}{
		{look.MechaHealth, []any{number, number}, []string{"SEARCH k USING INDEX mecha_key_mecha (mecha=?)",
			"SEARCH u USING INTEGER PRIMARY KEY (rowid=?)"}},
		{look.SentItself, []any{number}, []string{"SEARCH m USING INTEGER PRIMARY KEY (rowid=?)",
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
