package http

import (
	"cmp"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"relay/db/relay"
	"relay/http/docs"
)

// root answers GET /: a browser that opens the server's address is sent to the documentation.
func (s *Server) root(w http.ResponseWriter, r *http.Request) {
	http.Redirect(w, r, "/docs", http.StatusFound)
}

// docsIndex answers GET /docs, where every error links to.
func (s *Server) docsIndex(w http.ResponseWriter, _ *http.Request) {
	writePage(w, http.StatusOK, htmlType, docs.HTML().Index)
}

// docsPage answers GET /docs/NAME with a page, GET /docs/NAME.md with its Markdown, and GET
// /docs/NAME.png with a picture.
func (s *Server) docsPage(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/docs/")
	if page, known := docs.HTML().Pages[name]; known {
		writePage(w, http.StatusOK, htmlType, page)
		return
	}
	if picture, known := docs.HTML().Pictures[name]; known {
		writePage(w, http.StatusOK, pngType, picture)
		return
	}
	text, known := docs.HTML().Texts[name]
	if !known {
		s.noPage(w, r, "there is no such page; /docs lists the pages")
		return
	}
	writePage(w, http.StatusOK, markdownType, text)
}

// noPage answers 404: with a page if the client is a browser, else with a problem
// document.
func (s *Server) noPage(w http.ResponseWriter, r *http.Request, detail string) {
	if (r.Method == http.MethodGet || r.Method == http.MethodHead) && acceptsHTML(r.Header["Accept"]) {
		writePage(w, http.StatusNotFound, htmlType, docs.HTML().Missing)
		return
	}
	s.Refuse(w, r, relay.Errorf(relay.NotFound, "%s", detail))
}

// acceptsHTML reports whether an Accept header names text/html (RFC 9110 §12.5.1), as a
// browser's does. */* does not name it: every other program sends that.
func acceptsHTML(values []string) bool {
	for part := range strings.SplitSeq(strings.Join(values, ","), ",") {
		if media, parameters, err := mime.ParseMediaType(part); err == nil && media == "text/html" {
			q, err := strconv.ParseFloat(cmp.Or(parameters["q"], "1"), 64)
			return err == nil && q > 0
		}
	}
	return false
}

const (
	htmlType     = "text/html; charset=utf-8"
	markdownType = "text/markdown; charset=utf-8"
	pngType      = "image/png"
)

func writePage(w http.ResponseWriter, status int, contentType string, page []byte) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(page)))
	h.Set("Content-Security-Policy", docs.HTML().Policy)
	h.Set("Referrer-Policy", "no-referrer")
	w.WriteHeader(status)
	w.Write(page) // an error means that the client has gone
}
