package client_test

import (
	"flag"
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given && testing.Short() {
		flag.Set("test.parallel", "12") // with the race detector they need the processors
	} else if !given {
		flag.Set("test.parallel", "24") // they wait for timers most of the time
	}
	os.Exit(m.Run())
}
