package cmd_test

import (
	"os"
	"strings"
	"testing"

	"relay/db/scratch"
)

var clientCommands = [][]string{
	{"curl", "POST", "/api/v1/messages", "-i", "{}"}, {"send", "b^secrets", "{}"}, {"listen", "--state", "none"}, {"inbox"},
	{"ack", "msg_0t3z1hj9e001xzqx8pz68qj0y4"}, {"deliver", "msg_0t3z1hj9e001xzqx8pz68qj0y4"}, {"search", "b"}, {"whoami"},
}

func init() { clientsSay = commandsSay }

// commandsSay has what the client's commands print where they are refused.
func commandsSay(t *testing.T, l leak) string {
	var said strings.Builder
	for i, key := range append(l.refused, l.a.Key+"\n"+*l.a.Secret, "a b "+l.a.Key) {
		for j, url := range []string{l.url, "http://127.0.0.1:1", "ftp://127.0.0.1", "::"} {
			for k, command := range clientCommands {
				if !scratch.Long(t) && (i+j+k)%4 != 0 {
					continue // each command meets each key, and each address, once
				}
				if command[0] == "listen" && strings.HasSuffix(url, ":1") {
					continue // it would continue trying
				}
				r := run(t, command, []string{"RELAY_URL=" + url, "RELAY_KEY=" + key, "RELAY_SIGNING_SECRET=" + *l.a.Secret, "RELAY_RETRY=0s"}, "")
				if r.code == 0 {
					t.Errorf("%s with a bad key at %s succeeded", command[0], url)
				}
				said.WriteString(r.out + r.err)
			}
		}
	}
	keyFile := tempDB(t)
	if err := os.WriteFile(keyFile, []byte(*l.a.Secret+"\n"+l.a.Key), 0o600); err != nil {
		t.Fatal(err)
	}
	r := run(t, []string{"curl", "GET", "/", "--key-file", keyFile}, []string{"RELAY_URL=" + l.url}, "").wantCode(t, 1)
	said.WriteString(r.out + r.err)
	return said.String()
}
