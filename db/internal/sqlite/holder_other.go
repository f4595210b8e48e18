//go:build !linux

package sqlite

// Holder names the processes that have a lock of the database at path. This system does
// not tell.
func Holder(path string, l Lock) string { return unknownHolder }
