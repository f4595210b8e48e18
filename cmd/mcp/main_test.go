package mcp_test

import (
	"flag"
	"os"
	"testing"

	"relay/cmd/mcp"
)

// In the long form, sessions wait as long as in use for a relay that is silent when they start:
//
//	go test ./cmd/mcp -long
var long = flag.Bool("long", false, "the long form of the tests: seconds more")

func TestMain(m *testing.M) {
	flag.Parse()
	if !*long {
		mcp.Hurry()
	}
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		flag.Set("test.parallel", "8") // they wait for a relay that is silent
	}
	os.Exit(m.Run())
}
