package ring

import (
	"fmt"
	"strings"

	"relay/cmd/bench"
	"relay/cmd/internal/show"
)

// printFairness prints the table of the stage fairness, the first failure of each row, and the reasons why
// figures cannot be trusted.
func (a *app) printFairness(rows []bench.Fair) error {
	fmt.Fprintln(a.Stdout, "\nOne Mecha at its limits, and the times of another, the bystander: p50 and p99")
	t := show.NewTable(a.Stdout, "ATTACK", "CLIENTS", "BYSTANDER", "ALONE", "CONTROL", "ATTACKED", "RATIO", "FAILED",
		"ACCEPTED/S", "REFUSED/S", "CORES", "OTHERS", "")
	var failures, doubts []string
	for _, f := range rows {
		ratio := "-"
		if f.Ratio > 0 {
			ratio = fmt.Sprintf("%.1f", f.Ratio)
		}
		if !f.Withstood() {
			ratio += " UNFAIR"
		}
		failed := "-"
		if f.Attacked.Failed > 0 {
			failed = fmt.Sprintf("%d of %d", f.Attacked.Failed, f.Attacked.Failed+f.Attacked.Operations)
			failures = append(failures, fmt.Sprintf("%s, %s: %s", f.Attack, f.Bystander, f.Attacked.Problem))
		}
		mark := ""
		if len(f.Doubts) > 0 {
			mark = "?"
			doubts = append(doubts, fmt.Sprintf("%s, %s: %s", f.Attack, f.Bystander, strings.Join(f.Doubts, "; ")))
		}
		t.Row(f.Attack, count(float64(f.Clients)), f.Bystander, metOf(f.Alone), metOf(f.Control),
			metOf(f.Attacked), ratio, failed, count(f.Accepted), count(f.Refused),
			fmt.Sprintf("%.1f %.1f %.1f", f.AttackCores, f.AttackerCores, f.ControlCores), shareOf(f.Others), mark)
	}
	if err := t.End(); err != nil {
		return err
	}
	fmt.Fprintln(a.Stdout, "\nRATIO: the p99 under attack, divided by the greater of the two other p99s. UNFAIR: "+
		"more than 3, or something failed.\n"+
		"CORES: how many the relay and the attacker kept busy together, the attacker alone, and the relay and the control "+
		"load together. OTHERS: the share of the machine that other programs took.")
	if err := a.printNotes("The first failure under attack:", failures); err != nil {
		return err
	}
	return a.printNotes("? These figures cannot be trusted:", doubts)
}

func metOf(m bench.Met) string { return microsOf(m.P50) + ", " + microsOf(m.P99) }
