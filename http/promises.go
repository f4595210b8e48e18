package http

import (
	_ "embed"
	"net/http"
)

// Promises is the page on what holds when something fails, as Markdown.
//
//go:embed promises.md
var Promises string

func (s *Server) promises(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/markdown; charset=utf-8")
	w.Write([]byte(Promises)) // an error means that the client has gone
}
