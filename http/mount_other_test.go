//go:build !linux

package http_test

import "testing"

// mountSmall would give a directory with a file system of its own.
func mountSmall(*testing.T) string { return "" }
