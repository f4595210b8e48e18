package db

import "flag"

// Long is the flag of the long form. The usual form of the tests has each kind of check. The long
// form has the costly ones of a kind as well, and repeats what depends on chance, with the numbers
// of the runs in which faults were found:
//
//	go test ./db -long
var Long = flag.Bool("long", false, "the long form of the tests: minutes instead of seconds")

// Amount returns how often something is done, or how much there is of it.
func Amount(usual, longer int) int {
	if *Long {
		return longer
	}
	return usual
}
