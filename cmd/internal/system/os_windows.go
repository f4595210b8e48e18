package system

import "golang.org/x/sys/windows"

const AddressInUse = windows.WSAEADDRINUSE

// StopBetweenWrites does nothing: Windows has no Ctrl-Z that stops a process.
func StopBetweenWrites() {}

// OpenFiles returns false: Windows has no limit that matters here.
func OpenFiles() (int, bool) { return 0, false }

// Denied returns err as it is. Windows grants access by lists, so the system's own error
// must do.
func Denied(_ string, _ bool, err error) error { return err }
