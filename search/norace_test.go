//go:build !race

package search_test

const raceFactor = 1
