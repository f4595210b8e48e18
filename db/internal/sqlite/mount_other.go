//go:build !linux

package sqlite

// IsMountPoint is always false: other systems mount folders only.
func IsMountPoint(string) bool { return false }
