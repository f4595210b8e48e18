//go:build !linux

package platform

// IsMountPoint is always false, because other systems mount folders only.
func IsMountPoint(string) bool { return false }
