//go:build !linux

package platform

// Holder always returns "unknown", because this system does not reveal who has a lock.
func Holder(path string, l Lock) string { return unknownHolder }
