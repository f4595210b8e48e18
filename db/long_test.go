package db

import "flag"

// Long is the flag of the long form. The short form of the tests has each check at least once; the
// long form repeats the checks that depend on chance, with the numbers of the runs in which faults
// were found:
//
//	go test ./db -long
var Long = flag.Bool("long", false, "the long form of the tests: minutes instead of seconds")

// Amount gives how often something is done, or how much there is of it.
func Amount(usual, longer int) int {
	if *Long {
		return longer
	}
	return usual
}
