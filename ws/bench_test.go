package ws

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"relay/db/relay"
)

// The cost of making a frame of a message.
func BenchmarkMessageFrame(b *testing.B) {
	for _, size := range []int{32, 512, 64 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			m := &relay.Message{ID: "msg_0t3z1hj9e001xzqx8pz68qj0y4", Conversation: "conv_0t3z1hj9e001xzqx8pz68qj0y4", From: "planner^acme", To: "flights^acme",
				Type: "message", Priority: "normal", CreatedAt: time.Now(), Payload: bytes.Repeat([]byte("x"), size)}
			var frame []byte
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for range b.N {
				frame = appendMessage(frame[:0], m)
			}
		})
	}
}

func BenchmarkReceiptFrame(b *testing.B) {
	c := relay.Change{ID: "msg_0t3z1hj9e001xzqx8pz68qj0y4", State: relay.Acknowledged, Status: "completed", At: time.Now()}
	b.ReportAllocs()
	for range b.N {
		receiptFrame(&c)
	}
}
