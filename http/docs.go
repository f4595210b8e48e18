package http

import (
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
	writePage(w, htmlType, docs.HTML().Index)
}

// docsPage answers GET /docs/NAME with a page, and GET /docs/NAME.md with its Markdown.
func (s *Server) docsPage(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/docs/")
	if page, known := docs.HTML().Pages[name]; known {
		writePage(w, htmlType, page)
		return
	}
	text, known := docs.HTML().Texts[name]
	if !known {
		s.refuse(w, r, relay.Errorf(relay.NotFound, "there is no such page; /docs lists the pages"))
		return
	}
	writePage(w, markdownType, text)
}

const (
	htmlType     = "text/html; charset=utf-8"
	markdownType = "text/markdown; charset=utf-8"
)

func writePage(w http.ResponseWriter, contentType string, page []byte) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(page)))
	h.Set("Content-Security-Policy", docs.HTML().Policy)
	h.Set("Referrer-Policy", "no-referrer")
	w.Write(page) // an error means that the client has gone
}
