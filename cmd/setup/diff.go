package setup

import (
	"strings"
)

// Diff shows a change line by line, with a few lines around it. Our changes stand close
// together in all files, so that the lines before and after them are enough.
func (c *Change) Diff() string {
	before, after := splitLines(c.Before), splitLines(c.After)
	head := 0
	for head < len(before) && head < len(after) && before[head] == after[head] {
		head++
	}
	tail := 0
	for tail < len(before)-head && tail < len(after)-head && before[len(before)-1-tail] == after[len(after)-1-tail] {
		tail++
	}
	const around = 2
	var b strings.Builder
	show := func(mark string, lines []string) {
		for _, line := range lines {
			b.WriteString(mark + strings.TrimRight(line, "\r\n") + "\n")
		}
	}
	show("  ", before[max(0, head-around):head])
	show("- ", before[head:len(before)-tail])
	show("+ ", after[head:len(after)-tail])
	show("  ", before[len(before)-tail:min(len(before), len(before)-tail+around)])
	return b.String()
}

func splitLines(text []byte) []string {
	if len(text) == 0 {
		return nil
	}
	return strings.SplitAfter(strings.TrimSuffix(string(text), "\n"), "\n")
}
