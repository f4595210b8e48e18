package a2a

import (
	"embed"

	"relay/http/docs"
)

//go:embed a2a.md
var documentation embed.FS

func init() {
	docs.Register(docs.Ring{Name: "a2a", Files: documentation, Pages: []docs.Page{
		{Name: "a2a", Place: 32, Part: docs.Writing, About: "a gateway for A2A clients, even to offline Mechas"},
	}})
}
