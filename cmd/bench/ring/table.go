package ring

import (
	"cmp"
	"fmt"
	"strings"

	"relay/cmd/bench"
	"relay/cmd/internal/show"
)

// benchTitles are the titles of the stages' tables.
var benchTitles = map[string]string{
	"send":    "Sends over AT connections; with a 201 of durable and bare the message is on disk",
	"socket":  "Sends over AT sockets, several at once on each, and over AT connections with a request each",
	"push":    "One message at a time, to a socket",
	"ack":     "From the send to the receipt: sent, pushed, acknowledged on the socket, receipt at the sender; AT at once",
	"fanout":  "One message to one Mecha with AT sockets, until the last socket has it",
	"idle":    "Memory of the server for each of AT sockets",
	"history": "History, page after page",
	"sync":    "Reading a full mailbox over a WebSocket, and acknowledging each message",
	"search":  "Searches",
	"scale":   "A database of many messages, and one of few",
	"start":   "Starting again on the same file; the time since exec",
}

// ratioNames are the names of the rows that divide one case by another.
var ratioNames = map[string]string{"scale": "many ÷ few"}

// printBench prints a table for each stage, and the reasons why figures cannot be trusted.
func (a *app) printBench(r *bench.Report) error {
	fmt.Fprintf(a.Stdout, "relay %s, %s, %s, %d CPUs; %s of %gs; %d Mechas, payloads of %d bytes\n",
		r.Relay, r.Go, r.System, r.CPUs, show.Count(r.Repeats, "round"), r.Duration, r.Mechas, r.Payload)
	if r.Stored > 0 {
		fmt.Fprintf(a.Stdout, "with %s messages stored before\n", count(float64(r.Stored)))
	}
	if r.URL != "" {
		fmt.Fprintf(a.Stdout, "of the relay at %s\n", r.URL)
	}
	var notes []string
	busy := 0
	for _, row := range r.Rows {
		doubts := row.Doubts
		if row.Busy() {
			busy++
			doubts = doubts[1:]
		}
		if len(doubts) > 0 && !row.IsRatio() { // a ratio repeats the doubts of its rows
			name := row.Stage + ", " + row.Case
			if row.At > 0 {
				name += fmt.Sprintf(" at %d", row.At)
			}
			notes = append(notes, name+": "+strings.Join(doubts, "; "))
		}
	}
	for rows := r.Rows; len(rows) > 0; {
		n := 1
		for n < len(rows) && rows[n].Stage == rows[0].Stage {
			n++
		}
		if err := a.printStage(rows[:n]); err != nil {
			return err
		}
		rows = rows[n:]
	}
	if len(r.Rows) > 0 {
		fmt.Fprintf(a.Stdout, "\nCPU, GENERATOR: CPU time for each operation, in the server and in relay bench. DISK: "+
			"what the server wrote for each operation. OTHERS: the share of the machine that other programs took.\n")
	}
	if busy > 0 {
		notes = append([]string{fmt.Sprintf("%d of them: other programs took more than 5 %% of the CPU (see OTHERS). "+
			"Measure again when the machine has nothing else to do", busy)}, notes...)
	}
	if err := a.printNotes("? These figures cannot be trusted:", notes); err != nil || len(r.Fairness) == 0 {
		return err
	}
	return a.printFairness(r.Fairness)
}

// printNotes prints a list below its title, or nothing if the list is empty.
func (a *app) printNotes(title string, notes []string) error {
	if len(notes) == 0 {
		return nil
	}
	_, err := fmt.Fprintf(a.Stdout, "\n%s\n  %s\n", title, strings.Join(notes, "\n  "))
	return err
}

func (a *app) printStage(rows []bench.Row) error {
	fmt.Fprintf(a.Stdout, "\n%s\n", benchTitles[rows[0].Stage])
	t := show.NewTable(a.Stdout, "", "AT", "RATE/S", "P50", "P90", "P99", "P99.9", "CPU", "GENERATOR", "DISK",
		"MEMORY", "OTHERS", "")
	for _, r := range rows {
		mark := ""
		if len(r.Doubts) > 0 {
			mark = "?"
		}
		name, at, rate, memory := r.Case, count(float64(r.At)), count(r.PerSecond), "-"
		written := "-"
		if r.Written > 0 {
			written = show.Bytes(int64(r.Written))
		}
		switch {
		case r.IsRatio():
			rate = "-"
			if name == "ratio" {
				name = cmp.Or(ratioNames[r.Stage], name)
			}
			if r.Ratio > 0 {
				rate = fmt.Sprintf("%.2f", r.Ratio)
			}
		case r.Bytes != 0:
			memory = show.Bytes(int64(r.Bytes)) + " of " + show.Bytes(r.Memory)
		case r.Memory > 0:
			memory = show.Bytes(r.Memory)
		}
		t.Row(name, at, rate, microsOf(r.P50), microsOf(r.P90), microsOf(r.P99), microsOf(r.P999),
			microsOf(r.ServerCPU), microsOf(r.ClientCPU), written, memory, shareOf(r.Others), mark)
	}
	return t.End()
}

func shareOf(share *float64) string {
	if share == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", *share*100)
}

// microsOf formats microseconds: 87 µs, 1.24 ms, 2.1 s, or - for 0.
func microsOf(us float64) string {
	switch {
	case us <= 0:
		return "-"
	case us < 1:
		return "<1 µs"
	case us < 1000:
		return fmt.Sprintf("%.0f µs", us)
	case us < 1e6:
		return fmt.Sprintf("%.3g ms", us/1000)
	}
	return fmt.Sprintf("%.3g s", us/1e6)
}

// count formats a number: 12,345, or - for 0.
func count(n float64) string {
	if n <= 0 {
		return "-"
	}
	s := fmt.Sprintf("%.0f", n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
