package display

import "os"

// Unread would report whether f is a pipe whose reader has gone. Windows has no way
// to ask.
func Unread(*os.File) bool { return false }
