package cmd_test

import (
	"testing"

	"relay/cmd/relaytest"
)

// Relays in one process have a port and a file each. What one has written, the next one on its file has.
func TestRelaysInOneProcess(t *testing.T) {
	t.Parallel()
	one, other := relaytest.Start(t), relaytest.Start(t, "--max-body=100")
	a := issue(t, one.DB.Path(), "a^kit")[0]
	whoami := func(url string) int {
		t.Helper()
		ans, err := a.request("GET", "/api/v1/whoami", "").to(url)
		if err != nil {
			t.Fatal(err)
		}
		return ans.status
	}
	if here, there := whoami(one.URL), whoami(other.URL); here != 200 || there != 401 {
		t.Errorf("the key of one gets %d there, and %d from the other", here, there)
	}
	for range 2 {
		if err := one.Stop(); err != nil {
			t.Error(err)
		}
	}
	if isReady(one.URL) {
		t.Error("it answers after its stop")
	}
	if again := relaytest.Start(t, "--db", one.DB.Path()); whoami(again.URL) != 200 {
		t.Error("the key is gone with the relay")
	}
}
