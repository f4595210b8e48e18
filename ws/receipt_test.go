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

// Receipts that push has found in the store are not sent a second time when the hub has
// queued them as well.
func TestReceiptsFromTheStoreAreSentOnce(t *testing.T) {
	c := &Conn{}
	c.stream.receipts = 5
	var queued []queuedReceipt
	for at := relay.Position(3); at <= 7; at++ {
		queued = append(queued, queuedReceipt{at: at})
	}
	if left := c.newReceipts(queued); len(left) != 2 || left[0].at != 6 {
		t.Errorf("%v are left, want those at 6 and 7", left)
	}
}
