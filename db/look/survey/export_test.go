package survey

var One = one

// Small makes Overview count few rows, in many views. back undoes it.
func Small() (back func()) {
	rows, looked, least := overviewRows, overviewLooked, minCounted
	overviewRows, overviewLooked, minCounted = 0, 0, 5
	return func() { overviewRows, overviewLooked, minCounted = rows, looked, least }
}
