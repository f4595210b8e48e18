package cmd_test

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestWarmCopyByIntervalAfterAKillOfBoth(t *testing.T) {
	notQuick(t)
	notShort(t)
	notOnWindows(t, "there is no kill -9")
	t.Parallel()
	testWarmCopy(t, &seriesCopier{t: t, folder: t.TempDir()})
}

// seriesCopier is relay backup --every.
type seriesCopier struct {
	t       *testing.T
	folder  string
	process *server
	longest time.Duration // how long a copy of the last life took
}

func (c *seriesCopier) start(db string) {
	c.process = launch(c.t, exec.Command(binary, "backup", "--every", "1s", "--keep", "3", "--json", "--db", db, c.folder), nil)
}

// most is the time from the beginning of a copy to the end of the next one.
func (c *seriesCopier) most() time.Duration { return 2*time.Second + 2*c.longest }

func (c *seriesCopier) made(after time.Time) {
	name := after.UTC().Format("relay-20060102T150405.000Z.db")
	eventually(c.t, patience, "a copy", func() bool {
		all := c.copies()
		return len(all) > 0 && all[len(all)-1] > name
	})
}

// copies returns the names of the copies, the oldest first.
func (c *seriesCopier) copies() (names []string) {
	paths, err := filepath.Glob(filepath.Join(c.folder, "relay-*.db"))
	if err != nil {
		c.t.Fatal(err)
	}
	for _, p := range paths {
		names = append(names, filepath.Base(p))
	}
	slices.Sort(names)
	return names
}

func (c *seriesCopier) kill() { c.process.kill() }

func (c *seriesCopier) restore(db string) time.Time {
	c.t.Helper()
	c.longest = 0
	for line := range strings.Lines(c.process.stdout.String()) {
		took := parse[struct {
			MS int64 `json:"took_ms"`
		}](c.t, []byte(line)).MS
		c.longest = max(c.longest, time.Duration(took)*time.Millisecond)
	}
	r := parse[struct {
		From   string
		MadeAt time.Time `json:"made_at"`
	}](c.t, []byte(mustRelay(c.t, "restore", "--from", c.folder, "--db", db, "--json")))
	if all := c.copies(); filepath.Base(r.From) != all[len(all)-1] || len(all) > 4 { // 3, and one more if it was killed before it removed the oldest
		c.t.Errorf("restored %s of %v", r.From, all)
	}
	return r.MadeAt
}
