//go:build unix

package sqlite

import (
	"unsafe"

	"golang.org/x/sys/unix"
	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// pwrite is the system call, in the form in which SQLite calls it.
type pwrite func(t *libc.TLS, fd int32, from uintptr, size sqlite3.Tsize_t, at sqlite3.Toff_t) sqlite3.Tssize_t

// systemWrite is SQLite's own pwrite. countNoRoom sets it once, before the first file is
// opened.
var systemWrite pwrite

// countNoRoom makes SQLite take an exhausted quota (EDQUOT) or a limit of file sizes
// (EFBIG) for a full disk. By itself, SQLite takes only ENOSPC for that (unixWrite of
// os_unix.c), and a connection does not tell the error number afterwards. A write that
// fails has lost nothing, because SQLite has not reported the commit yet.
//
// SQLite lets a program replace its system calls: https://sqlite.org/c3ref/vfs.html.
func countNoRoom() {
	t := libc.NewTLS()
	defer t.Close()
	vfs := valueAt[sqlite3.Tsqlite3_vfs](sqlite3.Xsqlite3_vfs_find(t, 0))
	get := function[func(*libc.TLS, uintptr, uintptr) uintptr](vfs.FxGetSystemCall)
	set := function[func(*libc.TLS, uintptr, uintptr, uintptr) int32](vfs.FxSetSystemCall)
	for _, call := range []string{"pwrite64", "pwrite"} { // SQLite was built to use one of them
		name, err := libc.CString(call)
		if err != nil {
			continue
		}
		if own := get(t, 0, name); own != 0 {
			systemWrite = function[pwrite](own)
			ours := pwrite(writeOrNoRoom)
			set(t, 0, name, *(*uintptr)(unsafe.Pointer(&ours)))
		}
		libc.Xfree(t, name)
	}
}

// writeOrNoRoom is pwrite with ENOSPC for each error that says that there is no room.
func writeOrNoRoom(t *libc.TLS, fd int32, from uintptr, size sqlite3.Tsize_t, at sqlite3.Toff_t) sqlite3.Tssize_t {
	n := systemWrite(t, fd, from, size, at)
	if n < 0 {
		errno := valueAt[int32](libc.X__errno_location(t))
		if *errno == int32(unix.EDQUOT) || *errno == int32(unix.EFBIG) {
			*errno = int32(unix.ENOSPC)
		}
	}
	return n
}

// valueAt returns the value at an address of SQLite's memory.
func valueAt[T any](address uintptr) *T { return *(**T)(unsafe.Pointer(&address)) }

// function returns the Go function behind a C function pointer of modernc's SQLite.
func function[F any](pointer uintptr) F { return *(*F)(unsafe.Pointer(&struct{ uintptr }{pointer})) }
