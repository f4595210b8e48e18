package client_test

import (
	"flag"
	"os"
	"testing"

	"relay/db/scratch/wire"
	"relay/http/client"
)

func TestMain(m *testing.M) {
	flag.Parse()
	client.SetDial(wire.Dial)
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given && testing.Short() {
		flag.Set("test.parallel", "12") // with the race detector they need the processors
	} else if !given {
		flag.Set("test.parallel", "24") // some wait for the network
	}
	os.Exit(m.Run())
}
