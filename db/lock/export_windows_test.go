package lock

import "testing"

// Duplicate does nothing: processes are not forked on Windows.
func Duplicate(*testing.T, *Held) {}
