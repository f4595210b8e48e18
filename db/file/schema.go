package file

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"relay/db/internal/platform"
	"relay/db/internal/sqlite"
)

// The numbers in the header of a file that say which program made it (PRAGMA application_id).
const (
	applicationID = 0x52454c59 // "RELY"
	unreleasedID  = 0x524c4159 // "RLAY": a relay made the file before there was schema 1
)

// upgrades[n] is the script that brings a file of user_version n+1 to n+2. After all of them, a file
// has the schema of schema.sql. A released script is never changed. A new one comes with the old
// schema.sql in testdata, a test that upgrades a file made from it, and a line in CHANGELOG.md,
// since older programs refuse the file. upgrade_test.go checks each.
var upgrades []string

// CurrentSchema is the schema version (PRAGMA user_version) of the files that this
// program writes.
func CurrentSchema() int64 { return 1 + int64(len(upgrades)) }

// Create makes an empty file that only its owner can read and write, and makes its name
// durable. It does nothing if the file exists. A file that root makes belongs to the owner
// of the folder, such as the user of a service.
func Create(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	platform.GiveToOwnerOf(filepath.Dir(path), path)
	if err := f.Close(); err != nil {
		return err
	}
	return platform.SyncDir(filepath.Dir(path))
}

// OpenCurrent opens the file for writing and brings its schema up to date in one
// transaction: an empty file gets all of schema.sql, an older file the missing upgrades. It
// refuses a file of another program or of a newer relay, without changing it. The caller
// must hold the lock of the file. Errors name the path. The caller closes the connection.
func OpenCurrent(path, schema string) (*sqlite.Conn, error) {
	info, err := relaysInfo(path)
	if err != nil {
		return nil, err
	}
	isCurrent := info.application == applicationID && info.Version == CurrentSchema()
	r := sqlite.Writing
	if info.empty {
		r = sqlite.Creating
	}
	c, err := sqlite.Open(path, r)
	if err == nil {
		_, err = c.Row(nil, "SELECT 1 FROM sqlite_schema") // most faults show only at the first read
		if err != nil {
			c.Close()
		}
	}
	if err != nil {
		return nil, unreadable(path, err)
	}
	if isCurrent {
		return c, nil
	}
	if err := migrate(c, info, path, schema); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// migrate brings a file to the current schema. Content that the steps drop is overwritten: a
// recreated table leaves copies of its rows behind, which nothing would ever remove.
func migrate(c *sqlite.Conn, info Info, path, schema string) (err error) {
	if _, err := c.Row(nil, "PRAGMA secure_delete = ON"); err != nil {
		return err
	}
	defer func() {
		_, again := c.Row(nil, "PRAGMA secure_delete = FAST")
		err = cmp.Or(err, again)
	}()
	if err := c.BeginWrite(); err != nil {
		return err
	}
	if err := migrateTx(c, info, path, schema); err != nil {
		c.Rollback()
		return err
	}
	return c.Commit()
}

func migrateTx(c *sqlite.Conn, info Info, path, schema string) error {
	steps, err := info.steps(path, schema)
	if err != nil {
		return err
	}
	for _, step := range steps {
		if err := c.Script(step); err != nil {
			return fmt.Errorf("%s: schema: %w", path, err)
		}
	}
	if info.application == 0 {
		secret := make([]byte, 32)
		rand.Read(secret) // never fails (crypto/rand)
		if err := c.Exec("INSERT INTO setting (name, value) VALUES ('secret', ?), ('keys_version', 0), ('indexed_upto', "+
			"0), ('words_indexed_upto', 0), ('start', x''), ('last_position', 0), ('clock', 0)", secret); err != nil {
			return err
		}
	}
	return c.Script(fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d", applicationID, CurrentSchema()))
}

// versionError refuses a file that another version of relay wrote, which can read it.
type versionError struct{ error }

// steps returns the scripts that bring a file to the current schema, or refuses the
// file: one of another program, of a newer relay, or of a relay before schema 1.
func (i Info) steps(path, schema string) ([]string, error) {
	switch {
	case i.application == unreleasedID:
		return nil, versionError{fmt.Errorf("%s is of a relay from before the first release, and this one cannot read it: "+
			"use that one, or begin with a new database", path)}
	case i.application == applicationID && i.Version > CurrentSchema():
		return nil, versionError{fmt.Errorf("%s was written by a newer relay (schema %d; this one knows %d): "+
			"use that one, or a newer one",
			path, i.Version, CurrentSchema())}
	case i.application == applicationID && i.Version >= 1 && i.foreign != "":
		return nil, fmt.Errorf("%s has a %s that relay did not make, and it may change what relay reads and writes: "+
			"use a copy without it, or remove it with sqlite3 if you made it", path, i.foreign)
	case i.application == applicationID && i.Version >= 1:
		return upgrades[i.Version-1:], nil
	case i.application != 0 || i.Version != 0 || !i.empty:
		return nil, fmt.Errorf("%s is a database, but not relay's", path)
	}
	return []string{schema}, nil
}

// tables are the names of all tables of schema 1. The upgrades name those that they make.
var tables = strings.Fields("attempt audit clock_ahead conversation_limit counting dormant entry_nonce exchange " +
	"joined kept_nonce key_use learned learner mecha mecha_key message nonce_page origin participant payload profile " +
	"progress push receipt received replica reply search sent setting unlisted word word_hash " +
	"_litestream_lock _litestream_seq " + // Litestream makes these two in each database that it copies
	"sqlite_sequence sqlite_stat1 sqlite_stat4") // SQLite's own

var createdTable = regexp.MustCompile(`(?i)\bCREATE TABLE (\w+)`)

// foreignPart returns a trigger, a view or a table in the file that no relay of this version or an older one
// makes, or "". A trigger could undo what relay writes, and a view could hide it. Their content does not
// matter: a file may come from somebody else, as a backup. By hand, a row of sqlite_schema may have any name, and
// SQL in other words than SQLite's own, which begins with CREATE TABLE for a table that is not virtual.
func foreignPart(c *sqlite.Conn) (part string, err error) {
	known := slices.Clone(tables)
	for _, step := range upgrades {
		for _, created := range createdTable.FindAllStringSubmatch(step, -1) {
			known = append(known, created[1])
		}
	}
	r := c.Query("SELECT type, name, coalesce(sql, '') FROM sqlite_schema WHERE type <> 'index'")
	for r.Next() {
		isTable := r.Text(0) == "table" && strings.HasPrefix(r.Text(2), "CREATE TABLE ")
		if part == "" && (!isTable || !slices.Contains(known, r.Text(1))) {
			part = r.Text(0) + " " + r.Text(1)
		}
	}
	return part, r.Close()
}

// IndexedAsReceived is a subquery for EXISTS. It reports whether the table `received` has message m,
// an alias of the outer query.
const IndexedAsReceived = "SELECT 1 FROM received f " +
	"WHERE f.mecha = m.recipient AND f.open = m.open AND f.position = m.position"
