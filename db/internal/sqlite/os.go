package sqlite

import "errors"

// ErrLocked is the error of LockFile if another process has the lock.
var ErrLocked = errors.New("locked by another process")
