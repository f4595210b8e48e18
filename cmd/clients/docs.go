package clients

import (
	"embed"

	"relay/http/docs"
)

//go:embed clients.md
var documentation embed.FS

func init() {
	docs.Register(docs.Ring{Name: "clients", Files: documentation, Pages: []docs.Page{
		{Name: "clients", Place: 25, Part: docs.Writing,
			About: "clients for Python, JavaScript and Go: one API, a first answered question in each"},
	}})
}
