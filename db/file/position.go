package file

import (
	"errors"
	"fmt"
	"time"

	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// skipped is how much of the order's time a restored database skips. The positions that
// were handed out after the backup are in it, so that no id is used twice. It is enough
// unless the clock of this machine is behind the clock of the lost machine by more than
// that and the time without a server. Until the clock has passed it, the created_at of
// new messages is up to that far ahead.
const skipped = 10 * time.Second

// LastPosition returns the last position of the shared order that a database knows of, or
// 0. The caller may have a transaction open.
func LastPosition(c *sqlite.Conn) (last relay.Position, err error) {
	for _, query := range []string{
		"SELECT max(position) FROM message",
		"SELECT max(position) FROM receipt",
		"SELECT max(revision) FROM mecha",
		"SELECT max(position) FROM kept_nonce",
		"SELECT value FROM setting WHERE name = 'last_position'",
		"SELECT max(position) FROM learner",
		"SELECT last FROM replica",
	} {
		p, err := c.Number(query)
		if err != nil {
			return 0, err
		}
		last = max(last, relay.Position(p))
	}
	return last, nil
}

// skipLost makes the restored copy, whose last position is last, continue after all
// positions that may have been handed out since the backup: after its own, after those of
// the replaced database if that can be read, and after the present time; and then it skips
// some more. It syncs the copy.
func skipLost(copied, replaced string, last relay.Position, now time.Time) error {
	last = max(last, relay.PositionAt(now))
	if exists(replaced) && !isEmpty(replaced) {
		if later, err := lastPositionAt(replaced); err == nil { // it may be damaged, which is what restores are for
			last = max(last, later)
		}
	}
	next := min(relay.PositionAt(last.Time().Add(skipped)), relay.MaxPosition)
	c, err := sqlite.Open(copied, sqlite.Receiving)
	if err != nil {
		return fmt.Errorf("%s: %w", copied, err)
	}
	err = c.Exec("UPDATE setting SET value = ?1 WHERE name = 'last_position' AND value < ?1", int64(next))
	if closed := c.Close(); err == nil {
		err = closed
	}
	if err == nil {
		_, err = sync(copied)
	}
	return err
}

// lastPositionAt is LastPosition of the file at path.
func lastPositionAt(path string) (last relay.Position, err error) {
	c, _, err := OpenReadOnly(path)
	if err != nil {
		return 0, err
	}
	last, err = LastPosition(c)
	return last, errors.Join(err, c.Close())
}
