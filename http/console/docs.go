package console

import (
	"embed"

	"relay/http/docs"
)

//go:embed console.md *.png
var documentation embed.FS

func init() {
	docs.Register(docs.Ring{Name: "console", Files: documentation, Pages: []docs.Page{
		{Name: "console", Place: 115, Part: docs.Running, About: "look at a relay in a browser: what waits and why"},
	}})
}
