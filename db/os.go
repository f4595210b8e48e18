package db

import "errors"

// errLocked is the error of lockFile if another process has the lock.
var errLocked = errors.New("locked by another process")
