//go:build !linux

package lock

import "errors"

// Inode returns nil and no error, because a lock on the file itself would conflict with the
// locks that SQLite takes on it. Close of nil does nothing.
func Inode(string) (*Held, error) { return nil, nil }

// IsHeld returns errors.ErrUnsupported on this system.
func IsHeld(string) (bool, error) { return false, errors.ErrUnsupported }
