package browse

import (
	"errors"
	"io/fs"
	"path/filepath"

	"relay/db/lock"
)

// Serving reports whether a process serves a file.
type Serving int8

const (
	ServingUnknown Serving = iota // the system does not reveal it
	Served
	NotServed
)

// Server reports whether a process serves the file, by the server's lock.
func (i Inspector) Server() Serving {
	real, err := filepath.EvalSymlinks(i.Path())
	if err != nil {
		return ServingUnknown
	}
	held, err := lock.IsHeld(real + ".lock")
	switch {
	case held:
		return Served
	case err == nil, errors.Is(err, fs.ErrNotExist):
		return NotServed
	}
	return ServingUnknown // this system does not reveal it
}
