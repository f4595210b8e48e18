package setup

import (
	"embed"

	"relay/http/docs"
)

//go:embed waking.md
var documentation embed.FS

func init() {
	docs.Register(docs.Ring{Name: "setup", Files: documentation, Pages: []docs.Page{
		{Name: "waking", Place: 33, Part: docs.Writing, About: "wake Claude Code and others by a bell; setup and doctor"},
	}})
}
