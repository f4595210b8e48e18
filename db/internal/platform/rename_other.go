//go:build !linux

package platform

// RenameNew renames a file to a path that has none: os.ErrExist if it has one. If the
// process is killed, the file may have both names.
func RenameNew(from, to string) error { return linkNew(from, to) }
