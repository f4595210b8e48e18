//go:build race

package search_test

// raceFactor is how much longer things may take under the race detector.
const raceFactor = 10
