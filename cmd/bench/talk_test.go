package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"
)

// The messages of one worker, as the comment at the head of talk.go describes them.
func TestTheMessagesOfAgents(t *testing.T) {
	mechas := make([]*mecha, 100)
	for i := range mechas {
		mechas[i] = &mecha{address: fmt.Sprintf("m%d^bench", i)}
	}
	const messages, mean = 30_000, 512
	b := &bench{Config: Config{Payload: mean}}
	worker := b.talk(mechas, 1, 200) // with 100 conversations at a time
	lengths, ids, labelled, bytesInAll, toFirst := map[int]int{}, map[string]bool{}, 0, 0, 0
	for n := range messages {
		i := worker.random.IntN(len(worker.open))
		if worker.open[i] == nil {
			worker.open[i] = worker.next()
		}
		v := worker.open[i]
		var m struct {
			To, Conversation_id, Correlation_id, In_reply_to string
			Payload                                          json.RawMessage
		}
		body := worker.appendMessage(nil, v, v.other)
		if err := json.Unmarshal(body, &m); err != nil || m.To == "" || m.Correlation_id == "" || m.Payload[0] != '{' || v.asker == v.other {
			t.Fatalf("%s: %v", body, err)
		}
		if follows := v.sent > 0; (m.Conversation_id != "") == (m.In_reply_to != "") && follows || m.In_reply_to != v.last || m.Conversation_id != v.label {
			t.Fatalf("message %d of %+v is %s", v.sent, v, body)
		}
		if len(m.Payload) < smallestPayload || len(m.Payload) > mean*largestPayload || !bytes.Equal(m.Payload, fmt.Appendf(nil, `{"text":"%s"}`, bytes.Repeat([]byte("x"), len(m.Payload)-len(`{"text":""}`)))) {
			t.Fatalf("a payload of %d bytes: %.100s", len(m.Payload), m.Payload)
		}
		bytesInAll += len(m.Payload)
		if v.label != "" {
			labelled++
		}
		if v.sent == 0 && v.other == mechas[0] {
			toFirst++
		}
		v.accepted(fmt.Appendf(nil, `{"message_id":"msg_%d"}`, n))
		if v.sent == v.all {
			lengths[v.all]++
			worker.open[i] = nil
			if id := v.correlation; ids[id] {
				t.Fatalf("two conversations are called %q", id)
			}
			ids[v.correlation] = true
		}
	}
	// The generator begins with the same seed every time, so these bounds hold always or never.
	if len(lengths) != longestConversation-shortestConversation+1 || lengths[1]+lengths[longestConversation+1] > 0 {
		t.Errorf("the conversations have these lengths: %v", lengths)
	}
	if average := bytesInAll / messages; average < mean*9/10 || average > mean*11/10 {
		t.Errorf("a payload has %d bytes on average", average)
	}
	if labelled < messages*4/10 || labelled > messages*6/10 || toFirst < worker.begun/10 {
		t.Errorf("of %d messages %d carry a label; of %d conversations %d are with the most popular Mecha", messages, labelled, worker.begun, toFirst)
	}
}
