package scratch

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

// The usual form of the tests has each kind of check. The long form has the costly ones of a kind as
// well, and repeats what depends on chance, with the numbers of the runs in which faults were found.
var long = flag.Bool("long", false, "the long form of the tests: minutes instead of seconds")

// Long reports whether the tests run in the long form, and notes that t asks. .ci/run has only the tests
// that ask in the long form, since the usual form has all others.
func Long(t testing.TB) bool {
	name, _, _ := strings.Cut(t.Name(), "/")
	note(name)
	return *long
}

// LongAll is Long for all tests of a package, whose TestMain calls it.
func LongAll() bool {
	note(".*")
	return *long
}

// IsLong is Long without a note, for what is the same check either way: on disk as in memory.
func IsLong() bool { return *long }

// Amount returns how often something is done, or how much there is of it.
func Amount(t testing.TB, usual, longer int) int {
	if Long(t) {
		return longer
	}
	return usual
}

// noted is the file with a line for each test that has asked: its folder, and its name or what names it.
var noted, folderOfTests = os.Getenv("RELAY_TEST_NOTES"), workingFolder()

func workingFolder() string {
	dir, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	return dir
}

func note(tests string) {
	if noted == "" {
		return
	}
	f, err := os.OpenFile(noted, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = fmt.Fprintln(f, folderOfTests, tests)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		panic(err)
	}
}
