package file

import (
	"fmt"
	"time"

	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// maxActs is how many rows the audit log keeps; the oldest go first. Operators add rows
// by hand or by a script, so this is enough for years.
const maxActs = 100_000

// AddAct adds a row to the audit log, on an open transaction.
func AddAct(c *sqlite.Conn, n relay.NotedAct) error {
	var uid any
	if n.By.UID != relay.NoUID {
		uid = n.By.UID
	}
	err := c.Exec("INSERT INTO audit (at, uid, user, command, what, mecha, key, detail) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
		relay.MilliOf(n.At), uid, n.By.User, n.By.Command, n.What, sqlite.OrNull(string(n.Mecha)),
		sqlite.OrNull(string(n.Key)), n.Detail)
	if err != nil {
		return err
	}
	return c.Exec("DELETE FROM audit WHERE id <= (SELECT max(id) FROM audit) - ?", int64(maxActs))
}

// keepAudit copies the audit log of the database at replaced into the copy of the backup
// that will replace it, so that a restore cannot undo the log, and adds a row for the
// restore itself. If the replaced database cannot be read, its acts since the backup are
// lost; the restore's row says so. It syncs the copy.
func keepAudit(copied, replaced string, by relay.Actor, backup string) error {
	if by == (relay.Actor{}) {
		return nil
	}
	n := relay.NotedAct{At: time.Now(), By: by, What: relay.ActRestored, Detail: "from " + relay.Quote(backup)}
	c, err := sqlite.Open(copied, sqlite.Receiving)
	if err != nil {
		return fmt.Errorf("%s: %w", copied, err)
	}
	err = writeAudit(c, replaced, n)
	if closed := c.Close(); err == nil {
		err = closed
	}
	if err == nil {
		_, err = sync(copied)
	}
	return err
}

func writeAudit(c *sqlite.Conn, replaced string, restored relay.NotedAct) error {
	have, err := ReadActs(c, time.Time{})
	if err != nil {
		return err
	}
	var later []relay.NotedAct
	if exists(replaced) && !isEmpty(replaced) {
		if later, err = actsOf(replaced); err != nil {
			restored.Detail += "; what the replaced database had noted since then could not be read"
		}
	}
	in := map[relay.NotedAct]bool{}
	for _, a := range have {
		in[a] = true
	}
	if err := c.BeginWrite(); err != nil {
		return err
	}
	for _, a := range later {
		if in[a] {
			continue
		}
		if err := AddAct(c, a); err != nil {
			c.Rollback()
			return err
		}
	}
	if err := AddAct(c, restored); err != nil {
		c.Rollback()
		return err
	}
	return c.Commit()
}

// actsOf reads the audit log of the database at path.
func actsOf(path string) ([]relay.NotedAct, error) {
	c, _, err := OpenReadOnly(path)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return ReadActs(c, time.Time{})
}

// ReadActs reads the audit log from a time on, the oldest act first.
func ReadActs(c *sqlite.Conn, since time.Time) (all []relay.NotedAct, err error) {
	r := c.Query("SELECT at, coalesce(uid, ?), user, command, what, mecha, key, detail FROM audit "+
		"WHERE at >= ? ORDER BY id",
		int64(relay.NoUID), relay.MilliOf(since))
	for r.Next() {
		all = append(all, relay.NotedAct{At: relay.UnixMilli(r.Int(0)),
			By: relay.Actor{UID: r.Int(1), User: r.Text(2), Command: r.Text(3)}, What: r.Text(4),
			Mecha: relay.Address(r.Text(5)), Key: relay.KeyID(r.Text(6)), Detail: r.Text(7)})
	}
	return all, r.Close()
}
