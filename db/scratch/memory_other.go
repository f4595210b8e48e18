//go:build !linux

package scratch

// inMemory returns "": only Linux has a file system in memory at a known place.
func inMemory() string { return "" }
