package replication

import (
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"relay/db/admin"
	"relay/db/file"
	"relay/db/internal/sqlite"
	"relay/db/lock"
	"relay/db/relay"
)

// CreateLog makes the file at path, which it creates if it does not exist, the first copy
// that follows a log: a server then needs that log (Options.Log). Positions and cursors
// continue. by and detail are noted in the audit log. Errors name the path: another process
// has the file open, it follows a log already, or it is not relay's. Then the file is
// unchanged.
func CreateLog(path, schema string, by relay.Actor, detail string) (id file.LogID, err error) {
	if err := file.Create(path); err != nil {
		return id, err
	}
	err = changeFollowing(path, schema, func(c *sqlite.Conn, follows bool) error {
		if follows {
			return fmt.Errorf("%s belongs to a cluster already (relay cluster leave makes it a plain file)", path)
		}
		at, err := createLog(c)
		id = at.Log
		if err != nil {
			return err
		}
		return file.AddAct(c, relay.NotedAct{At: time.Now(), By: by, What: relay.ActClusterFounded, Detail: detail})
	})
	return id, err
}

// RecreateLog makes the file of a stopped server, which follows a log, the first copy of another
// one, in one step: for a log that cannot continue. All else is as with CreateLog.
func RecreateLog(path, schema string, by relay.Actor, detail string) (id file.LogID, err error) {
	if err := file.MustExist(path); err != nil { // before its lock is made
		return id, err
	}
	err = changeFollowing(path, schema, func(c *sqlite.Conn, follows bool) error {
		if !follows {
			return errPlain(path)
		}
		if err := leaveLog(c); err != nil {
			return err
		}
		at, err := createLog(c)
		id = at.Log
		if err != nil {
			return err
		}
		return file.AddAct(c, relay.NotedAct{At: time.Now(), By: by, What: relay.ActClusterFounded, Detail: detail})
	})
	return id, err
}

// LeaveLog makes the file of a stopped server, which follows a log, its own log again.
// Positions and cursors continue. Its next start refuses requests that were signed before,
// because other copies may have taken them. by and detail are noted in the audit log.
// Errors: as with CreateLog, and ErrPlain if the file follows no log.
func LeaveLog(path, schema string, by relay.Actor, detail string) error {
	if err := file.MustExist(path); err != nil { // before its lock is made
		return err
	}
	return changeFollowing(path, schema, func(c *sqlite.Conn, follows bool) error {
		if !follows {
			return errPlain(path)
		}
		if err := leaveLog(c); err != nil {
			return err
		}
		return file.AddAct(c, relay.NotedAct{At: time.Now(), By: by, What: relay.ActClusterLeft, Detail: detail})
	})
}

// ErrPlain refuses a file that follows no log.
var ErrPlain = errors.New("is a plain file: it belongs to no cluster")

func errPlain(path string) error { return fmt.Errorf("%s %w", path, ErrPlain) }

// leaveLog makes a copy of a log a plain file, in a transaction of the caller.
func leaveLog(c *sqlite.Conn) error {
	for _, statement := range []string{
		"UPDATE setting SET value = max(value, (SELECT last FROM replica)) WHERE name = 'last_position'",
		// then the ring of nonces, which has another mark, counts as incomplete
		"UPDATE setting SET value = randomblob(16) WHERE name = 'start'",
		"DELETE FROM nonce_page",
		"DELETE FROM entry_nonce", "DELETE FROM origin", "DELETE FROM replica",
	} {
		if err := c.Exec(statement); err != nil {
			return err
		}
	}
	return nil
}

// changeFollowing changes, in one transaction, whether the file at path follows a log. No
// server may have it.
func changeFollowing(path, schema string, change func(c *sqlite.Conn, follows bool) error) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	held, err := file.Lock(path)
	if errors.Is(err, lock.ErrHeld) {
		return fmt.Errorf("%s %w: stop that one first", path, admin.ErrServed)
	}
	if err != nil {
		return err
	}
	defer held.Close()
	c, err := file.OpenCurrent(path, schema)
	if err != nil {
		return err
	}
	defer c.Close()
	_, follows, err := file.ReadReplica(c)
	if err != nil {
		return err
	}
	if err := c.BeginWrite(); err != nil {
		return err
	}
	if err = change(c, follows); err == nil {
		err = c.Commit()
	}
	if err != nil {
		c.Rollback()
	}
	return err
}

// createLog writes the row that makes a file the first copy of a log, in a transaction of the
// caller, and gives the log its name. Positions continue after those that the file has.
func createLog(c *sqlite.Conn) (at file.Replica, err error) {
	at.Version = newestRules
	rand.Read(at.Log[:]) // never fails (crypto/rand)
	if at.Last, err = file.LastPosition(c); err != nil {
		return at, err
	}
	return at, c.Exec("INSERT INTO replica (id, log, version, applied, at, last, hash) VALUES (1, ?, ?, 0, 0, ?, 0)",
		at.Log[:], at.Version, int64(at.Last))
}
