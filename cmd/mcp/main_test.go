package mcp_test

import (
	"flag"
	"os"
	"testing"

	"relay/cmd/mcp"
	"relay/db/scratch"
)

// In the long form, sessions wait as long as in use for a relay that is silent when they start.
func TestMain(m *testing.M) {
	flag.Parse()
	if !scratch.LongAll() {
		mcp.Hurry()
	}
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		flag.Set("test.parallel", "8") // they wait for a relay that is silent
	}
	os.Exit(m.Run())
}
