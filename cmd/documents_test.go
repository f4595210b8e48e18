package cmd_test

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"relay/http/apitest"
)

// The tests of this package check the documents that the program serves.
func init() {
	apitest.Describe(func() (open, async []byte) { return mustPrint("openapi"), mustPrint("asyncapi") })
}

func mustPrint(name string) []byte {
	text, err := exec.Command(binary, name).Output()
	if err != nil {
		panic(err)
	}
	return text
}

// The commands print the documents that a server of this program gives.
func TestTheDocumentsCanBePrinted(t *testing.T) {
	notShort(t)
	t.Parallel()
	s := startServer(t, tempDB(t))
	for name, version := range map[string]string{"openapi": "3.1.1", "asyncapi": "3.0.0"} {
		text := mustRelay(t, name)
		var doc map[string]any
		if err := json.Unmarshal([]byte(text), &doc); err != nil || doc[name] != version {
			t.Errorf("relay %s: %v, %v", name, err, doc[name])
		}
		ans, err := request{method: "GET", path: "/" + name + ".json"}.to(s.url)
		if err != nil || ans.status != 200 || string(ans.body) != text {
			t.Errorf("/%s.json: %v, %d, %d bytes, relay %s prints %d", name, err, ans.status, len(ans.body), name, len(text))
		}
		line := mustRelay(t, name, "--json")
		var again map[string]any
		if err := json.Unmarshal([]byte(line), &again); err != nil || strings.Count(line, "\n") != 1 || len(again) != len(doc) {
			t.Errorf("relay %s --json: %v, %d lines", name, err, strings.Count(line, "\n"))
		}
		runRelay(t, name, "now").wantCode(t, 2, "no arguments")
	}
}
