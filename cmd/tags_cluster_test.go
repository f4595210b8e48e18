//go:build cluster

package cmd_test

// testTags are the build tags of the program under test.
const testTags = "cluster"
