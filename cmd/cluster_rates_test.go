//go:build cluster && !windows

package cmd_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"relay/db/scratch"
)

// picture is the file that TestClusterSecondBySecond draws.
var picture = flag.String("picture", "", "draw what a lost node does to a cluster into this `file`, as SVG; with -long")

// others returns the other nodes.
func (n *clusterNode) others() (all []*clusterNode) {
	for _, o := range n.trio.nodes {
		if o != n {
			all = append(all, o)
		}
	}
	return all
}

// What clients see of a cluster, second by second, while a follower is killed and comes back, and
// then the leader.
func TestClusterSecondBySecond(t *testing.T) {
	if !scratch.Long(t) {
		t.Skip("it takes a minute and draws a picture: -long, and -picture FILE")
	}
	c := newTrio(t)
	l := c.load(c.nodes[0].issue(trioAddresses(64)...))
	l.calm(500)
	c.leader().whole()
	began, from := time.Now(), l.acked.Load()
	var taken []int64
	var marks []mark
	var victim *clusterNode
	for second := 1; second <= 60; second++ {
		time.Sleep(time.Until(began.Add(time.Duration(second) * time.Second))) // the clock of the picture
		now := l.acked.Load()
		taken, from = append(taken, now-from), now
		switch second {
		case 10:
			victim = c.follower()
			victim.kill()
			marks = append(marks, mark{second, "a follower is killed"})
		case 30:
			victim = c.leader()
			victim.kill()
			marks = append(marks, mark{second, "the leader is killed"})
		case 20, 45:
			victim.launch()
			marks = append(marks, mark{second, "it starts again"})
		}
	}
	victim.ready()
	l.end()
	l.verify()
	t.Logf("messages accepted in each second: %v", taken)
	for _, m := range marks {
		t.Logf("after second %d: %s", m.second, m.what)
	}
	if *picture != "" {
		if err := os.WriteFile(*picture, drawSeconds(taken, marks), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c.compare()
}

type mark struct {
	second int
	what   string
}

// drawSeconds draws a bar for each second, and a line for each mark.
func drawSeconds(taken []int64, marks []mark) []byte {
	const left, top, bar, height = 74, 84, 10, 220
	most := max(slices.Max(taken), 1)
	var b strings.Builder
	width := left + bar*len(taken) + 24
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%[2]d" role="img">
<title>Messages accepted in each second, while nodes of a cluster are killed</title>
<style>text{font:13px system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;fill:#1f2328}.title{font-size:16px;font-weight:600}.soft{font-size:12px;fill:#59636e}
.ground{fill:#fff}.bar{fill:#0969da}.axis{stroke:#59636e}.mark{stroke:#bc4c00;stroke-dasharray:3 3}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.soft{fill:#9198a1}.ground{fill:#0d1117}.bar{fill:#58a6ff}.axis{stroke:#9198a1}.mark{stroke:#f0883e}}</style>
<rect class="ground" width="100%%" height="100%%"/><text class="title" x="16" y="28">Messages accepted in each second</text>
`, width, top+height+50)
	for i, n := range taken {
		h := float64(n) / float64(most) * height
		fmt.Fprintf(&b, `<rect class="bar" x="%d" y="%.1f" width="%d" height="%.1f"/>`+"\n", left+bar*i+1, top+height-h, bar-2, h)
	}
	for i, m := range marks {
		x, y := left+bar*m.second, top-28+14*(i%2)
		fmt.Fprintf(&b, `<line class="mark" x1="%d" x2="%[1]d" y1="%d" y2="%d"/><text class="soft" x="%d" y="%d">%s</text>`+"\n", x, y-10, top+height, x+4, y, m.what)
	}
	fmt.Fprintf(&b, `<line class="axis" x1="%d" x2="%d" y1="%d" y2="%[3]d"/>`+"\n", left, left+bar*len(taken), top+height)
	for second := 0; second <= len(taken); second += 10 {
		fmt.Fprintf(&b, `<text class="soft" text-anchor="middle" x="%d" y="%d">%d s</text>`+"\n", left+bar*second, top+height+18, second)
	}
	for _, part := range []int64{0, 1, 2} {
		fmt.Fprintf(&b, `<text class="soft" text-anchor="end" x="%d" y="%d">%d/s</text>`+"\n", left-6, top+height-int(part)*height/2+4, most*part/2)
	}
	b.WriteString("</svg>\n")
	return []byte(b.String())
}
