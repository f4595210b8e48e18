package ws

import (
	"strings"
	"testing"

	"relay/db/relay"
)

// Of several words about the progress of one message, the latest is sent, in its place.
// Every other receipt is sent.
func TestReceiptsOfProgressCoalesce(t *testing.T) {
	const delivered, acknowledged = relay.Delivered, relay.Acknowledged
	for _, test := range []struct {
		sent    string
		changes []relay.Change
	}{
		{"a", []relay.Change{{Position: 1, State: delivered, Status: "processing", Detail: "a"}}},
		{"bc", []relay.Change{
			{Position: 1, State: delivered, Status: "processing", Detail: "a"}, {Position: 2, State: delivered, Status: "received", Detail: "b"},
			{Position: 1, State: delivered, Status: "received", Detail: "c"},
		}},
		{"abd", []relay.Change{ // a mark, and a final word
			{Position: 1, State: delivered, Detail: "a"}, {Position: 2, State: acknowledged, Status: "completed", Detail: "b"},
			{Position: 1, State: delivered, Status: "processing", Detail: "c"}, {Position: 1, State: delivered, Status: "processing", Detail: "d"},
		}},
		{"bcde", []relay.Change{ // words that acknowledge are all sent
			{Position: 1, State: delivered, Status: "received", Detail: "a"}, {Position: 1, State: delivered, Status: "processing", Detail: "b"},
			{Position: 1, State: acknowledged, Status: "seen", Detail: "c"}, {Position: 1, State: acknowledged, Status: "processing", Detail: "d"},
			{Position: 1, State: acknowledged, Status: "seen", Detail: "e"},
		}},
		{"ab", []relay.Change{{Position: 1, State: relay.Expired, Detail: "a"}, {Position: 2, State: relay.Expired, Detail: "b"}}},
		{"", nil},
	} {
		var list []queuedReceipt
		for i := range test.changes {
			list = append(list, newQueuedReceipt(&test.changes[i], []byte(test.changes[i].Detail)))
		}
		if got := string(appendReceipts(nil, list)); got != test.sent {
			t.Errorf("%s of %s were sent", got, strings.Join(details(test.changes), ""))
		}
	}
}

func details(changes []relay.Change) (all []string) {
	for _, c := range changes {
		all = append(all, c.Detail)
	}
	return all
}
