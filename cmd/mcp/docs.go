package mcp

import (
	"embed"

	"relay/http/docs"
)

//go:embed mcp.md
var documentation embed.FS

func init() {
	docs.Register(docs.Ring{Name: "mcp", Files: documentation, Pages: []docs.Page{
		{Name: "mcp", Place: 31, Part: docs.Writing, About: "tools for models: a mailbox for Claude Code, Codex and others"},
	}})
}
