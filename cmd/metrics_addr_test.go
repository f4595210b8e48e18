package cmd_test

import (
	"strings"
	"testing"
)

func TestATakenAddressOfMetricsLeavesNoFile(t *testing.T) {
	t.Parallel()
	leavesNoFile(t, "--metrics-addr")
}

// The address of the metrics comes from the environment, too, and the log names it.
func TestTheAddressOfMetricsIsLogged(t *testing.T) {
	t.Parallel()
	s := startServerIn(t, []string{"RELAY_LOG_FORMAT=auto", "RELAY_METRICS_ADDR=127.0.0.1:0"}, tempDB(t))
	if said := s.stderr.String(); !strings.Contains(said, `"msg":"serving metrics","addr":"127.0.0.1:`) {
		t.Error(said)
	}
}
