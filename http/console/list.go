package console

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode"

	"relay/db/relay"
)

const maxPages = 10_000

// pageOf reads which page of a list a request wants, from 1 on, and how many rows precede it.
func (c *Console) pageOf(r *http.Request, rows int) (n, from int) {
	n, err := strconv.Atoi(r.URL.Query().Get("page"))
	if err != nil {
		n = 1
	}
	n = min(max(n, 1), maxPages)
	return n, (n - 1) * rows
}

// pagesOf makes the links to the pages before and after page n.
func pagesOf(r *http.Request, n int, more bool) (p pager) {
	if n > 1 {
		p.Before = linkWith(r, "page", strconv.Itoa(n-1))
	}
	if more && n < maxPages {
		p.After = linkWith(r, "page", strconv.Itoa(n+1))
	}
	return p
}

// linkWith is the link to the same view with other values in its query, as name, value, name,
// value; "" takes a name away.
func linkWith(r *http.Request, pairs ...string) string {
	q := url.Values{}
	for name, values := range r.URL.Query() {
		q[name] = values
	}
	for i := 0; i < len(pairs); i += 2 {
		if q.Del(pairs[i]); pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	return (&url.URL{Path: r.URL.Path, RawQuery: q.Encode()}).String()
}

// cut returns the first characters of a text of unknown origin, and says by an ellipsis that it has
// more. Line breaks become spaces; what would change the direction of the text becomes visible.
func cut(text string, limit int) string {
	more := ""
	if len(text) > limit {
		n := 0
		for i := range text {
			if n++; n > limit {
				text, more = text[:i], "…"
				break
			}
		}
	}
	return relay.Visible(strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))) + more
}
