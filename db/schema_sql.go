package db

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

const (
	applicationID = 0x524c4159 // "RLAY", in the file's header
	schemaVersion = 1
)

// upgrades[n] brings a file of user_version n+1 to n+2. schema.sql is what they
// all lead to; a test holds the oldest schema and compares.
var upgrades = []string{}

// createFile makes an empty file that only its owner can read, and makes its
// name durable. It does nothing if there is one.
func createFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// migrate brings the file to the current schema: all of schema.sql for a new
// one, the missing steps for an older one, in one transaction.
func migrate(c *conn, path, schema string) error {
	app, version, err := fileVersion(c)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if app == applicationID && version == schemaVersion {
		return nil
	}
	if err := c.exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	if err := migrateTx(c, path, schema); err != nil {
		c.exec("ROLLBACK")
		return err
	}
	return c.exec("COMMIT")
}

func migrateTx(c *conn, path, schema string) error {
	// Read again under the lock: another process may have been faster.
	app, version, err := fileVersion(c)
	if err != nil {
		return err
	}
	steps, err := missingSteps(c, path, schema, app, version)
	if err != nil {
		return err
	}
	for _, step := range steps {
		if err := c.script(step); err != nil {
			return fmt.Errorf("%s: schema: %w", path, err)
		}
	}
	if app == 0 {
		secret := make([]byte, 32)
		rand.Read(secret) // never fails (crypto/rand)
		if err := c.exec("INSERT INTO setting (name, value) VALUES ('secret', ?), ('keys_version', 0)", secret); err != nil {
			return err
		}
	}
	return c.script(fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d", applicationID, schemaVersion))
}

func missingSteps(c *conn, path, schema string, app, version int64) ([]string, error) {
	switch {
	case app == applicationID && version > schemaVersion:
		return nil, fmt.Errorf("%s was written by a newer relay (schema %d; this one knows %d): use that one, or a newer one",
			path, version, schemaVersion)
	case app == applicationID && version >= 1:
		return upgrades[version-1:], nil
	}
	empty := false
	_, err := c.row(func(r *rows) { empty = r.int(0) == 0 }, "SELECT count(*) FROM sqlite_schema")
	if err != nil {
		return nil, err
	}
	if app != 0 || version != 0 || !empty {
		return nil, fmt.Errorf("%s is a database, but not relay's", path)
	}
	return []string{schema}, nil
}

func fileVersion(c *conn) (app, version int64, err error) {
	if _, err = c.row(func(r *rows) { app = r.int(0) }, "PRAGMA application_id"); err != nil {
		return 0, 0, err
	}
	_, err = c.row(func(r *rows) { version = r.int(0) }, "PRAGMA user_version")
	return app, version, err
}
