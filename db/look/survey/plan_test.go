package survey

import (
	"strings"
	"testing"

	"relay/db/dbtest"
	"relay/db/look/browse"
)

// A console reads all Mechas, and the newest events, by ranges of an index, so that the cost is
// in proportion to what it shows. Nothing is sorted but what was just read.
func TestTheConsoleReadsRanges(t *testing.T) {
	in, err := browse.Inspect(dbtest.Open(t).Path())
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	number := int64(1)
	for _, q := range []struct {
		name, text string
		args       []any
		want       []string // the plan has them
	}{
		{"waiting", mechasWaiting, []any{number, number}, []string{"SEARCH mecha USING INTEGER PRIMARY KEY (rowid>?)", "SEARCH received USING PRIMARY KEY (mecha=? AND open=?)"}},
		{"unindexed", unindexedWaiting, []any{number, number, number, number}, []string{"SEARCH message USING INTEGER PRIMARY KEY (rowid>?)", "SEARCH a USING INTEGER PRIMARY KEY (rowid=?)"}},
		{"count", countWaiting, []any{number, number, number, number}, []string{"SEARCH received USING PRIMARY KEY (mecha=? AND open=? AND position<?)"}},
		{"oldest", oldestWaiting, []any{number, number, number, number}, []string{"SEARCH received USING PRIMARY KEY (mecha=? AND open=? AND position<?)", "SEARCH m USING INTEGER PRIMARY KEY (rowid=?)"}},
		{"attempts", countAttempts, []any{number, number, number}, []string{"SEARCH attempt USING INDEX attempt_recipient (recipient=?)"}},
		{"leases", mechaLeases, []any{number, int64(10), int64(10)}, []string{"attempt_recipient (recipient=?)"}},
		{"keys that were looked at", lookedKeys + "k.mecha = ?", []any{number, number, number}, []string{"mecha_key_mecha (mecha=?)"}},
		{"sent", spanSent, []any{number, number}, []string{"SEARCH message USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"}},
		{"settled", spanSettled, []any{number, number}, []string{"SEARCH receipt USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"}},
		{"next message", nextMessage, []any{number, number}, []string{"SEARCH message USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"}},
		{"next receipt", nextReceipt, []any{number, number}, []string{"SEARCH receipt USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"}},
		{"dead", deadSince, []any{number, number, number}, []string{"SEARCH receipt USING INTEGER PRIMARY KEY (rowid>?)"}},
		{"newest", newestPosition, []any{number}, nil},
		{"pushes", pushesAfter, []any{number}, []string{"SEARCH push USING INTEGER PRIMARY KEY (rowid>?)"}},
		{"newest pushes", lastPushes, []any{number}, nil},
		{"mechas", pageOfMechas, []any{"", "[]", number, number}, []string{"SCAN mecha USING INDEX sqlite_autoindex_mecha_1"}},
		// Of the keys, all are looked at, once.
		{"count of keys", countKeys, []any{number, number, "", ""}, []string{"SCAN k", "SEARCH m USING INTEGER PRIMARY KEY (rowid=?)", "SEARCH u USING INTEGER PRIMARY KEY (rowid=?)"}},
		{"keys", pageOfKeys(hasKeyText), []any{number, number, "", "", number, number, number}, []string{"SCAN k", "SEARCH m USING INTEGER PRIMARY KEY (rowid=?)", "SEARCH u USING INTEGER PRIMARY KEY (rowid=?)"}},
		{"keys of a Mecha", pageOfKeys("k.mecha = ?"), []any{number, number, number, number, number, number}, []string{"SEARCH k USING INDEX mecha_key_mecha (mecha=?)"}},
		{"first message", firstMessage, nil, []string{"SEARCH message"}},
		{"last message", lastMessage, nil, []string{"SEARCH message"}},
		{"last receipt", lastReceipt, nil, []string{"SEARCH receipt"}},
		{"last act", lastAct, nil, []string{"SCAN audit\n"}}, // by its key, from the end: nothing is sorted
		{"not indexed", countUnindexed, []any{number, number}, []string{"SEARCH m USING INTEGER PRIMARY KEY (rowid>?)", "SEARCH f USING PRIMARY KEY (mecha=? AND open=? AND position=?)"}},
		{"profiles", profilesAfter(""), []any{"", number}, []string{"SEARCH m USING INDEX sqlite_autoindex_mecha_1 (address>?)"}},
	} {
		plan := dbtest.Plan(t, in, q.text, q.args...)
		for _, want := range q.want {
			if !strings.Contains(plan, want) {
				t.Errorf("%s: the plan lacks %q:\n%s", q.name, want, plan)
			}
		}
		for _, line := range strings.Split(plan, "\n") {
			ranged := strings.Contains(q.text, "ORDER BY position DESC LIMIT") // the newest rows of a table, from its end
			if !ranged && (strings.HasPrefix(line, "SCAN message") || strings.HasPrefix(line, "SCAN receipt") || strings.HasPrefix(line, "SCAN push") || strings.HasPrefix(line, "SCAN attempt")) {
				t.Errorf("%s reads a whole table:\n%s", q.name, plan)
			}
			if strings.Contains(line, "TEMP B-TREE") && q.text == lastAct {
				t.Errorf("%s sorts:\n%s", q.name, plan)
			}
		}
	}
}
