package survey

var One = one

// Small makes Overview count few rows, in many views. back undoes it.
func Small() (back func()) {
	rows, looked, least := overviewRows, overviewLooked, leastCounted
	overviewRows, overviewLooked, leastCounted = 0, 0, 5
	return func() { overviewRows, overviewLooked, leastCounted = rows, looked, least }
}
