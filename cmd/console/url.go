package console

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"relay/db/lock"
	"relay/http/console"
)

// urls are the URLs that let a browser in to a console.
type urls struct {
	URL   string    `json:"url"`   // by a name of its own, if it has one
	Plain string    `json:"plain"` // by its address, for a browser that does not find that name
	Begun time.Time `json:"begun"`
}

func urlsOf(scheme string, addr net.Addr, c *console.Console) urls {
	u := urls{Plain: scheme + "://" + addr.String() + "/" + c.Fragment(), Begun: time.Now()}
	u.URL = u.Plain
	if _, port, err := net.SplitHostPort(addr.String()); err == nil && c.Host() != "" {
		u.URL = scheme + "://" + net.JoinHostPort(c.Host(), port) + "/" + c.Fragment()
	}
	return u
}

func (u urls) json(dbPath string) map[string]string {
	return map[string]string{"url": u.URL, "plain_url": u.Plain, "db": dbPath}
}

// urlFile is where the console of a process leaves its URLs: next to the database, and like it for its owner
// alone. Who can read the database may look at it by the console. As long as the process lives, it has the lock
// of the same name with lockSuffix.
func urlFile(dbPath, process string) string {
	if real, err := filepath.EvalSymlinks(dbPath); err == nil {
		dbPath = real
	}
	return dbPath + ".console-" + process
}

const lockSuffix = ".lock"

// leaveURLs leaves the URLs of a console for relay console --print-url. remove takes them away.
func leaveURLs(dbPath string, u urls, log *slog.Logger) (remove func()) {
	livingConsoles(dbPath) // removes what killed ones have left
	path := urlFile(dbPath, strconv.Itoa(os.Getpid()))
	held, err := lock.File(path + lockSuffix)
	if err == nil {
		text, _ := json.Marshal(u) // strings and a time
		err = lock.Replace(path, append(text, '\n'))
	}
	if err != nil {
		log.Warn("relay console --print-url will not find this console", "error", err)
	}
	return func() {
		_ = os.Remove(path)
		_ = held.Close()
		_ = os.Remove(path + lockSuffix) // of what stays, the next console or --print-url finds that nobody has the lock
	}
}

// livingConsoles reads the URLs of the consoles that run on a database. It removes the files of
// those that were killed.
func livingConsoles(dbPath string) (all []urls) {
	names, _ := filepath.Glob(escapeGlob(urlFile(dbPath, "")) + "*" + lockSuffix)
	for _, name := range names {
		path := strings.TrimSuffix(name, lockSuffix)
		held, err := lock.File(name)
		if err == nil { // its process has ended
			_ = os.Remove(path)
			_ = held.Close()
			_ = os.Remove(name)
		}
		var u urls
		if text, err := os.ReadFile(path); err == nil && json.Unmarshal(text, &u) == nil {
			all = append(all, u)
		}
	}
	return all
}

// escapeGlob makes a path a pattern that matches itself alone.
func escapeGlob(path string) string {
	if os.PathSeparator != '/' {
		return path // there, \ is no escape, and a pattern finds what it can
	}
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}

// printConsoleURL prints the URL of the console that runs on a database; of several, that which
// was started last.
func (a *app) printConsoleURL(dbPath string) error {
	all := livingConsoles(dbPath)
	if len(all) == 0 {
		return fmt.Errorf("no console runs on %s: relay console starts one, relay serve --console has one", dbPath)
	}
	last := all[0]
	for _, u := range all {
		if u.Begun.After(last.Begun) {
			last = u
		}
	}
	if a.JSON {
		return a.PrintJSON(last.json(dbPath))
	}
	_, err := fmt.Fprintln(a.Stdout, last.URL)
	return err
}
