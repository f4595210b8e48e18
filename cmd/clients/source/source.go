// Package source is the text of the clients in other languages. Each client is one file, without
// dependencies, which "relay client LANGUAGE" prints for a program to keep next to its own source.
//
// A new language is a file, an example, and a row of Languages; the page "clients" has its use.
// The tests put any client through a relay on a bad day, and let agents of all languages ask
// each other.
package source

import (
	"bytes"
	"embed"
)

// A Language is a language in which a client, or a part of one, is written.
type Language struct {
	Name    string // as in "relay client NAME"
	File    string // the name under which a program keeps the client
	About   string // what the file is, for lists
	Example string // the file of an example, a worker and an asker, or ""
}

// Languages has all languages, in the order in which they are listed.
var Languages = []Language{
	{Name: "python", File: "relay_client.py", About: "Python 3.9 or newer, with and without asyncio",
		Example: "example.py"},
	{Name: "js", File: "relay.mjs", About: "for Node.js 20 or newer, Deno, Bun and browsers", Example: "example.mjs"},
	{Name: "ts", File: "relay.d.mts", About: "the types of relay.mjs, for TypeScript"},
}

//go:embed *.py *.mjs *.mts
var files embed.FS

// unstamped is the placeholder of the version in each file.
const unstamped = "0.0.0-unstamped"

// Client is the text of the client, with the version of this program in it.
func (l Language) Client(version string) []byte { return stamped(l.File, version) }

// ExampleText is the text of the example, or nil.
func (l Language) ExampleText(version string) []byte {
	if l.Example == "" {
		return nil
	}
	return stamped(l.Example, version)
}

func stamped(file, version string) []byte {
	text, err := files.ReadFile(file)
	if err != nil {
		panic(err) // a file of the table was not embedded; the tests read them all
	}
	text = bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))
	return bytes.ReplaceAll(text, []byte(unstamped), []byte(version))
}
