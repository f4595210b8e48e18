//go:build !linux

package sqlite

// IsMountPoint is always false, because other systems mount folders only.
func IsMountPoint(string) bool { return false }
