package console

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"relay/db/relay"
)

//go:embed pages static
var files embed.FS

var errNoPage = relay.Errorf(relay.NotFound, "there is no such page")

// pages returns the parsed templates, each with layout.html and parts.html. They are parsed at
// the first page: that takes 3 ms, which no other start of the program should pay for.
var pages = sync.OnceValue(parsePages)

func parsePages() map[string]*template.Template {
	common := template.Must(template.New("").Funcs(helpers).ParseFS(files, "pages/layout.html", "pages/parts.html"))
	all := map[string]*template.Template{}
	names, _ := files.ReadDir("pages") // it is embedded
	for _, f := range names {
		name, _ := strings.CutSuffix(f.Name(), ".html")
		if name != "layout" && name != "parts" {
			all[name] = template.Must(template.Must(common.Clone()).ParseFS(files, "pages/"+f.Name()))
		}
	}
	return all
}

// frame is what layout.html shows around a view, and the view's own data.
type frame struct {
	Page   string // the name of its file in pages/
	Path   string // of the request
	Tabs   any
	File   string // the database
	Live   bool   // the server's own console
	Acts   bool   // there is an Operator
	Socket bool   // there are sockets
	Cursor string // the page shows all events up to here
	Query  string
	Now    time.Time
	Data   any
}

// view answers a request with the page of a row of the route table.
func (c *Console) view(w http.ResponseWriter, r *http.Request, row route) {
	c.flow.asked()
	f := c.frame(r, row.page) // before the data is read, so that no event falls between
	data, err := row.show(c, r)
	if err != nil {
		c.refuse(w, r, err)
		return
	}
	f.Data = data
	c.write(w, http.StatusOK, f)
}

func (c *Console) frame(r *http.Request, page string) frame {
	query := ""
	if page == "now" { // the others have a search of their own
		query = r.URL.Query().Get("q")
	}
	return frame{Page: page, Path: r.URL.Path, Tabs: tabs, File: c.config.Store.Path(), Live: c.config.Live != nil,
		Acts: c.config.Operator != nil, Socket: c.config.Upgrade != nil, Cursor: cursor(c.flow.position()), Query: query,
		Now: c.config.Now()}
}

// write sends a page, all of it or none.
func (c *Console) write(w http.ResponseWriter, status int, f frame) {
	var b bytes.Buffer
	if err := pages()[f.Page].ExecuteTemplate(&b, "layout", f); err != nil {
		c.config.Logger.Error("a page of the console could not be made", "page", f.Page, "error", err)
		http.Error(w, "This page could not be made. The log of the console says why.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = b.WriteTo(w) // the client may be gone
}

// refuse answers with a page that says what is wrong.
func (c *Console) refuse(w http.ResponseWriter, r *http.Request, err error) {
	status, text := http.StatusInternalServerError, "The database could not be read. The log of the console says why."
	var e *relay.Error
	if errors.As(err, &e) && e.Cause == nil {
		text = e.Detail
		switch e.Code {
		case relay.NotFound, relay.MessageNotFound, relay.MechaNotFound, relay.ConversationNotFound, relay.RecipientNotFound,
			relay.UnknownKey:
			status = http.StatusNotFound
		case relay.AlreadyAcknowledged, relay.MessageExpired, relay.KeyRevoked:
			status = http.StatusConflict
		case relay.PayloadTooLarge:
			status = http.StatusRequestEntityTooLarge
		case relay.OriginNotAllowed:
			status = http.StatusForbidden
		case relay.UpgradeRequired:
			status = http.StatusUpgradeRequired
		default:
			status = http.StatusBadRequest
		}
	} else if r.Context().Err() == nil {
		c.config.Logger.Error("the console could not show a page", "path", r.URL.Path, "error", err)
	}
	if !c.hasSession(r) {
		http.Error(w, text, status)
		return
	}
	f := c.frame(r, "wrong")
	f.Data = struct {
		Status int
		Text   string
	}{status, text}
	c.write(w, status, f)
}

// signIn answers with the page that lets a browser in.
func (c *Console) signIn(w http.ResponseWriter, r *http.Request) {
	if !strings.Contains(r.Header.Get("Accept"), "text/html") {
		http.Error(w, "There is no session: open the URL that the console printed.", http.StatusUnauthorized)
		return
	}
	var b bytes.Buffer
	if err := pages()["door"].ExecuteTemplate(&b, "door", c.config.Password != ""); err != nil {
		c.refuse(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(http.StatusUnauthorized)
	_, _ = b.WriteTo(w) // the client may be gone
}

// static answers GET /static/{file}.
func (c *Console) static(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	text, err := files.ReadFile("static/" + name)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", map[string]string{".js": "text/javascript; charset=utf-8",
		".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}[path.Ext(name)])
	w.Header().Set("Cache-Control", "no-cache")
	_, _ = w.Write(text) // the client may be gone
}

// helpers are what the templates may call.
var helpers = template.FuncMap{
	"clock":  func(t time.Time) string { return t.Local().Format("15:04:05") },
	"moment": moment,
	"iso":    func(t time.Time) string { return relay.FormatTime(t) },
	"zone":   func(t time.Time) string { return t.Local().Format("MST") },
	"ago":    ago,
	"age":    age,
	"waited": waited,
	"took":   took,
	"size":   size,
	"count":  count,
	"plural": plural,
	"tone":   func(level int) string { return [...]string{"good", "warn", "bad"}[level] },
	"counting": func(all []plot) bool {
		return slices.ContainsFunc(all, func(p plot) bool { return p.Counting })
	},
	"blank":  func() row { return row{} },
	"within": func(page, tab string) bool { return tab != "/" && strings.HasPrefix(page, tab+"/") },
	"mecha":  func(a relay.Address) string { return "/mecha/" + string(a) },
	"conv":   conversationPath,
	"cut":    func(text string) string { return cut(text, textLength) },
	"plain":  func(text any) string { return relay.Visible(fmt.Sprint(text)) },
	"short":  func(id any) string { return relay.Visible(shorten(fmt.Sprint(id))) },
}

// moment writes a time of today as a clock, an earlier one with its day.
func moment(t, now time.Time) string {
	t, now = t.Local(), now.Local()
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format("15:04:05 MST")
	}
	return t.Format("2 Jan 15:04 MST")
}

// ago writes how long before now a time was: "5 min ago", "just now".
func ago(t, now time.Time) string {
	if now.Sub(t) < time.Second {
		return "just now"
	}
	return age(now.Sub(t)) + " ago"
}

// waited writes how long something has waited since a time, one second at least.
func waited(since, now time.Time) string { return age(max(now.Sub(since), time.Second)) }

// age writes a time in its one or two largest units.
func age(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < time.Second:
		return "now"
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%d min", d/time.Minute)
	case d < 48*time.Hour:
		if m := d % time.Hour / time.Minute; m > 0 {
			return fmt.Sprintf("%d h %d min", d/time.Hour, m)
		}
		return fmt.Sprintf("%d h", d/time.Hour)
	}
	return fmt.Sprintf("%d days", d/(24*time.Hour))
}

// took writes a short time with three digits.
func took(d time.Duration) string {
	switch {
	case d <= 0:
		return "0 ms"
	case d < time.Millisecond:
		return fmt.Sprintf("%.2g ms", float64(d)/float64(time.Millisecond))
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
	case d < time.Second:
		return fmt.Sprintf("%d ms", d/time.Millisecond)
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return age(d)
}

// size writes a number of bytes.
func size(n int64) string {
	const units = "KMGT"
	if n < 1000 {
		return plural(int(n), "byte")
	}
	f, u := float64(n), -1
	for f >= 999.5 && u < len(units)-1 {
		f, u = f/1024, u+1
	}
	return fmt.Sprintf("%.3g %ciB", f, units[u])
}

// count writes a number with a narrow space between each three digits.
func count(n any) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "\u202f" + text[i:]
	}
	return text
}

// plural writes "1 message", "2 messages".
func plural(n int, of string) string {
	if n == 1 {
		return "1 " + of
	}
	return count(n) + " " + of + "s"
}

// humane writes the times in a sentence of relay.Judge as people of this zone read them, and
// shortens its ids. What clients wrote in it is made visible.
func humane(text string, now time.Time) string {
	text = timestamp.ReplaceAllStringFunc(text, func(stamp string) string {
		t, err := time.Parse(time.RFC3339, stamp)
		if err != nil {
			return stamp
		}
		return moment(t, now)
	})
	return relay.Visible(identifier.ReplaceAllStringFunc(text, shorten))
}

var (
	timestamp  = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z`)
	identifier = regexp.MustCompile(`\b(msg|conv)_[0-9a-z]{20,}\b`)
)

// shorten leaves the end of an id, by which people tell them apart.
func shorten(id string) string {
	if len(id) <= 14 {
		return id
	}
	kind, _, _ := strings.Cut(id, "_")
	return kind + "_…" + id[len(id)-8:]
}
