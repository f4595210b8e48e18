package look_test

import (
	"strings"
	"testing"

	"relay/db/internal/engine"
	"relay/db/look"
)

// What is read of a Mecha costs its rows alone.
func TestTheStateOfAMechaIsReadByIndexes(t *testing.T) {
	number := int64(1)
	in, err := look.Inspect(open(t).Path())
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
		var plan strings.Builder
		err := in.Point(t.Context(), func(x *engine.Rx) error {
			r := x.C.Query("EXPLAIN QUERY PLAN "+q.text, q.args...)
			for r.Next() {
				plan.WriteString(r.Text(3) + "\n")
			}
			return r.Close()
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range q.want {
			if !strings.Contains(plan.String(), want) {
				t.Errorf("the plan lacks %q:\n%s", want, plan.String())
			}
		}
		if strings.Contains(plan.String(), "SCAN ") {
			t.Errorf("a whole table is read:\n%s", plan.String())
		}
	}
}
