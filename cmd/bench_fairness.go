package cmd

import (
	"fmt"
	"strings"

	"relay/cmd/bench"
)

// printFairness prints the table of the stage fairness, and why figures cannot be
// trusted.
func (a *app) printFairness(rows []bench.Fair) error {
	fmt.Fprintln(a.stdout, "\nWhat a Mecha notices of another that is at its limits; p50 and p99")
	t := a.tableOf("ATTACK", "CLIENTS", "BYSTANDER", "ALONE", "CONTROL", "ATTACKED", "RATIO", "FAILED", "ACCEPTED/S", "REFUSED/S", "CORES", "OTHERS", "")
	var notes []string
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
			notes = append(notes, fmt.Sprintf("%s, %s failed first with: %s", f.Attack, f.Bystander, f.Attacked.Problem))
		}
		mark := ""
		if len(f.Doubts) > 0 {
			mark = "?"
			notes = append(notes, fmt.Sprintf("%s, %s: ? %s", f.Attack, f.Bystander, strings.Join(f.Doubts, "; ")))
		}
		t.row(f.Attack, count(float64(f.Clients)), f.Bystander, metOf(f.Alone), metOf(f.Control), metOf(f.Attacked), ratio, failed,
			count(f.Accepted), count(f.Refused), fmt.Sprintf("%.1f %.1f %.1f", f.AttackCores, f.AttackerCores, f.ControlCores), shareOf(f.Others), mark)
	}
	if err := t.end(); err != nil {
		return err
	}
	fmt.Fprintln(a.stdout, "\nRATIO: the p99 attacked, divided by the greater of the two other p99. UNFAIR: more than 3, or something failed.\n"+
		"CORES: kept busy by relay and attacker together, by the attacker alone, and by relay and control load. OTHERS: the share of the machine that other programs took.")
	if len(notes) > 0 {
		fmt.Fprintf(a.stdout, "\n? cannot be trusted:\n  %s\n", strings.Join(notes, "\n  "))
	}
	return nil
}

func metOf(m bench.Met) string { return microsOf(m.P50) + ", " + microsOf(m.P99) }
