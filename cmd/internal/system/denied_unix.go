//go:build unix

package system

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"relay/db/file"
	"relay/db/relay"
)

// Denied replaces err, the error of opening the database at path, by a sentence that says
// which of its files this process may not use, and which users may. SQLite itself says no
// more than "unable to open database file". An error that has another reason is returned
// as it is. write reports whether the command writes to the database.
func Denied(path string, write bool, err error) error {
	path, absErr := filepath.Abs(path)
	if err == nil || absErr != nil || !file.IsDenied(err) {
		return err
	}
	real := path
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		real = resolved
	}
	for _, ending := range []string{"", "-wal", "-shm", "-journal"} {
		name := real + ending
		if mayNot(name, unix.R_OK) {
			return noPermission(path, name, unix.R_OK)
		}
		if write && mayNot(name, unix.W_OK) {
			return noPermission(path, name, unix.W_OK)
		}
	}
	if folder := filepath.Dir(real); write && mayNot(folder, unix.W_OK|unix.X_OK) { // SQLite makes files there
		return noPermission(path, folder, unix.W_OK)
	}
	if write && mayNot(real+".lock", unix.W_OK) { // for a server, and for the commands that replace one
		return noPermission(path, real+".lock", unix.W_OK)
	}
	return err
}

// mayNot reports whether this process lacks a permission on a file or a folder.
func mayNot(name string, mode uint32) bool {
	return errors.Is(unix.Faccessat(unix.AT_FDCWD, name, mode, unix.AT_EACCESS), fs.ErrPermission)
}

// noPermission makes the error for the database at path, whose file or folder name is closed to us.
func noPermission(path, name string, mode uint32) error {
	info, err := os.Stat(name)
	for ; err != nil && name != "/"; info, err = os.Stat(name) { // up to the folder that is closed to us
		name, mode = filepath.Dir(name), unix.X_OK
	}
	if err != nil {
		return fmt.Errorf("%s: permission denied", path)
	}
	it := "it"
	if name != path {
		it = name
	}
	do := map[uint32]string{unix.R_OK: "read", unix.W_OK: "write", unix.X_OK: "enter"}[mode]
	owner := info.Sys().(*syscall.Stat_t)
	if int(owner.Uid) == os.Geteuid() {
		return fmt.Errorf("%s: permission denied: %s is yours, but its mode %04o forbids to %s: chmod u+rwX %s",
			path, it, info.Mode().Perm(), do, relay.ShellWord(name))
	}
	if folder, err := os.Stat(filepath.Dir(name)); err == nil && owner.Uid == 0 &&
		int(folder.Sys().(*syscall.Stat_t).Uid) == os.Geteuid() {
		return fmt.Errorf("%s: permission denied: root has made %s in your folder; it must be yours: sudo chown %s %s",
			path, it, userName(os.Geteuid()), relay.ShellWord(name))
	}
	who, sudo := "user "+strconv.Itoa(int(owner.Uid)), "'#"+strconv.Itoa(int(owner.Uid))+"'"
	if u, err := user.LookupId(strconv.Itoa(int(owner.Uid))); err == nil {
		who, sudo = "the user "+u.Username, u.Username
	}
	if uint32(info.Mode().Perm())&(mode<<3) != 0 { // the bit of the group for the same right
		who += " and the group " + groupName(owner.Gid)
	}
	return fmt.Errorf("%s: permission denied: only %s may %s %s (mode %04o); run this command as that user, "+
		"as in sudo -u %s relay …",
		path, who, do, it, info.Mode().Perm(), sudo)
}

func userName(uid int) string {
	id := strconv.Itoa(uid)
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return id
}

func groupName(gid uint32) string {
	id := strconv.Itoa(int(gid))
	if g, err := user.LookupGroupId(id); err == nil {
		return g.Name
	}
	return id
}
