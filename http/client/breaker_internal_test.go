package client

import (
	"fmt"
	"testing"
	"time"
)

func TestBreaker(t *testing.T) {
	b := breaker{limit: 3}
	now := time.Unix(1_000_000, 0)
	send := func(conversation string, want bool) {
		t.Helper()
		allowed := b.begin(conversation, now)
		if allowed != want {
			t.Fatalf("%s: %v, want %v", conversation, allowed, want)
		}
		if allowed {
			b.end(conversation, now, true)
		}
	}
	for range 3 {
		send("a", true)
		now = now.Add(time.Minute)
	}
	send("a", false)
	send("b", true)
	now = now.Add(7*time.Minute - time.Nanosecond)
	send("a", false)
	now = now.Add(time.Nanosecond) // the first answer is ten minutes old
	send("a", true)
	send("a", false)

	// An answer under way takes a place, and gives it back if it is not sent.
	for range 3 {
		if !b.begin("c", now) {
			t.Fatal("c is full")
		}
	}
	send("c", false)
	b.end("c", now, false)
	send("c", true)
	b.end("c", now, false)
	b.end("c", now, false)

	for i := range 1000 {
		send(fmt.Sprint(i), true)
	}
	now = now.Add(breakerWindow)
	if send("a", true); len(b.of) != 1 || len(b.sent) != 1 {
		t.Errorf("it remembers %d conversations and %d answers", len(b.of), len(b.sent))
	}
	b = breaker{}
	for range 100 {
		send("a", true)
	}
}
