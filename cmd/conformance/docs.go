package conformance

import (
	"embed"

	"relay/http/docs"
)

//go:embed conformance.md
var documentation embed.FS

func init() {
	docs.Register(docs.Ring{Name: "conformance", Files: documentation, Pages: []docs.Page{
		{Name: "conformance", Place: 45, Part: docs.Writing,
			About: "judge your own client, in any language, or your own server"},
	}})
}
