package backlog

const CountReceived = countReceived

// Small makes CountPending count few rows in a view. back undoes it.
func Small() (back func()) {
	rows, mechas := pendingRows, pendingMecha
	pendingRows, pendingMecha = 2, 1
	return func() { pendingRows, pendingMecha = rows, mechas }
}
