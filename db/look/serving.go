package look

// Serving tells whether a process serves a file.
type Serving int8

// What is known.
const (
	ServingUnknown Serving = iota // the system does not tell
	Served
	NotServed
)
