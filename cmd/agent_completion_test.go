package cmd_test

import "testing"

func TestCompletionOfAClient(t *testing.T) {
	notShort(t)
	t.Parallel()
	s := startServer(t, tempDB(t))
	k := issue(t, s.db, "alice^x", "bob^x")
	m := s.send(k[0], "bob^x", `{}`)
	for words, want := range map[string][]string{
		"send bob^x {} --in-reply-to ": {m.MessageID},
		"reply ":                       {m.MessageID},
		"ask b":                        {"bob^x"},
	} {
		s.wantCompleted(words, want)
	}
}
