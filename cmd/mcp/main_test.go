package mcp_test

import (
	"flag"
	"os"
	"testing"

	"relay/cmd/mcp"
)

func TestMain(m *testing.M) {
	mcp.Hurry()
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		flag.Set("test.parallel", "8") // they wait for a relay that is silent
	}
	os.Exit(m.Run())
}
