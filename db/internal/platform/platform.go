// Package platform has the system calls for the files of a database that package os lacks:
// sync a folder, rename without replacing, give a file to an owner. It hides the differences
// between systems: each call exists on all of them, and its comment says where it does
// nothing.
//
// Holder names the processes that lock a database. Of SQLite it knows only which bytes of the
// file -shm are its locks.
//
// The package opens no database: package sqlite alone may do that.
package platform
