package db_test

import "flag"

// The short form of the tests has each check at least once; the long form
// repeats the checks that depend on chance, with the numbers of the runs in which faults were found:
//
//	go test ./db -long
var long = flag.Bool("long", false, "the long form of the tests: minutes instead of seconds")

// amount gives how often something is done, or how much there is of it.
func amount(usual, longer int) int {
	if *long {
		return longer
	}
	return usual
}
