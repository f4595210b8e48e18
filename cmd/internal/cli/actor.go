package cli

import (
	"fmt"

	"relay/db"
)

import (
	"os"
	"os/user"
	"strings"

	"relay/db/relay"
)

// Actor is who runs this command, for the audit log. The caller's name from sudo is kept in addition; a user
// who can forge it can also write the file, and so the log.
func (a *App) Actor() relay.Actor {
	by := relay.Actor{UID: relay.NoUID, Command: a.Command, User: systemName()}
	if uid := os.Getuid(); uid >= 0 {
		by.UID = int64(uid)
	}
	if caller := os.Getenv("SUDO_USER"); caller != "" {
		by.User = strings.TrimSpace(by.User + " by sudo of " + relay.Visible(caller))
	}
	return by
}

// systemName returns the system's name for the user of this process, or "" if it has none, as in a container.
// Without cgo, os/user falls back on $USER, even in LookupId, and caches the result. So the variable is hidden
// from it.
func systemName() string {
	if name, set := os.LookupEnv("USER"); set && os.Getuid() >= 0 {
		os.Unsetenv("USER")
		defer os.Setenv("USER", name)
	}
	me, err := user.Current()
	if err != nil {
		return ""
	}
	return me.Username
}

// Note adds a row to the audit log of the database, after a change of the whole file.
func (a *App) Note(what, detail string) error {
	err := a.WithDB(false, func(d *db.DB) error { return d.Note(what, detail) })
	if err != nil {
		return fmt.Errorf("it is done, but the audit log could not be written: %w", err)
	}
	return nil
}
