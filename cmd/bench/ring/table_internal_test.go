package ring

import (
	"bytes"
	"strings"
	"testing"

	"relay/cmd/bench"
	"relay/cmd/internal/cli"
)

// A report of several stages prints the doubts of all of them, and failures next to doubts.
func TestTheTableOfFairnessNamesFailuresAndDoubts(t *testing.T) {
	var out bytes.Buffer
	met := bench.Met{P50: 1000, P99: 2000, Operations: 90}
	failed := met
	failed.Failed, failed.Problem = 10, "connection reset"
	err := (&app{&cli.App{Stdout: &out}}).printBench(&bench.Report{
		Rows: []bench.Row{{Stage: "send", Case: "durable", At: 8, Doubts: []string{"the generator was busy"}}},
		Fairness: []bench.Fair{
			{Attack: "floods", Bystander: "send", Alone: met, Control: met, Attacked: met, Ratio: 1},
			{Attack: "floods", Bystander: "read", Alone: met, Control: met, Attacked: failed, Ratio: 1},
			{Attack: "slow bodies", Bystander: "ack", Alone: met, Control: met, Attacked: met, Ratio: 3.1, Doubts: []string{"the attacker was refused everything"}},
		}})
	if err != nil {
		t.Fatal(err)
	}
	table, notes, _ := strings.Cut(out.String(), "\nRATIO:")
	for _, want := range []struct {
		row  string
		has  []string
		lack string
	}{
		{"floods - send", []string{" 1.0 - "}, "UNFAIR"},
		{"floods - read", []string{" 1.0 UNFAIR 10 of 100 "}, "?"},
		{"slow bodies - ack", []string{" 3.1 UNFAIR - ", "?"}, " of "},
	} {
		found := false
		for line := range strings.Lines(table) {
			row := strings.Join(strings.Fields(line), " ")
			if !strings.HasPrefix(row, want.row) {
				continue
			}
			found = true
			for _, text := range want.has {
				if !strings.Contains(row, text) {
					t.Errorf("%q lacks %q", row, text)
				}
			}
			if strings.Contains(row, want.lack) {
				t.Errorf("%q has %q", row, want.lack)
			}
		}
		if !found {
			t.Errorf("no row %q in\n%s", want.row, table)
		}
	}
	if text := "send, durable at 8: the generator was busy"; !strings.Contains(table, text) {
		t.Errorf("no %q in\n%s", text, table)
	}
	for _, text := range []string{"floods, read: connection reset", "slow bodies, ack: the attacker was refused everything"} {
		if !strings.Contains(notes, text) {
			t.Errorf("no %q in\n%s", text, notes)
		}
	}
}
