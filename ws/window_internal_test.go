package ws

import (
	"testing"

	"relay/db/relay"
)

// An opened window lets as many messages through as it holds, and an acknowledgement
// of an earlier one frees no place in it.
func TestAnOpenedWindowIsAWindow(t *testing.T) {
	w := &window{size: 2}
	add := func(p relay.Position) { w.add(&relay.Message{Position: p}) }
	add(1)
	add(2)
	if w.room() != 0 {
		t.Fatalf("room for %d", w.room())
	}
	w.open()
	if w.room() != 2 {
		t.Fatalf("opened, it has room for %d", w.room())
	}
	add(3)
	add(4)
	if w.free(1) || w.room() != 0 {
		t.Error("a message of the window before has freed a place")
	}
	if !w.free(3) || w.room() != 1 {
		t.Error("its own message has freed no place")
	}
}
