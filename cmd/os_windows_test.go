package cmd_test

import (
	"os"
	"testing"
)

// Tests that need these functions skip on Windows before they call them.

func free(*testing.T, *os.File) int64 { return 0 }
func pause(*server)                   {}
func resume(*server)                  {}
func ctrlZ(*server)                   {}
