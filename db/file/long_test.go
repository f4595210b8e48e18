package file_test

import "flag"

// long is the flag of the long form, in which those who want a lock try as often as in use:
//
//	go test ./db/file -long
var long = flag.Bool("long", false, "the long form of the tests: a second more")
