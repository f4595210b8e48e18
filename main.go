// Relay is a single-binary message relay for AI agents: see README.md, and
// package cmd for what a person can type.
package main

import (
	_ "embed"
	"os"

	"relay/cmd"
)

//go:embed schema.sql
var schema string

func main() {
	os.Exit(cmd.Main(schema, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
