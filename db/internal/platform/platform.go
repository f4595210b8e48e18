// Package platform asks the operating system about the files of a database, and has it do what
// package os cannot: sync a folder, rename without replacing, give a file to an owner. It
// knows the systems apart, so that the store need not: each call exists on all of them, and
// says where it does nothing.
//
// Holder names the processes that lock a database. It knows of SQLite only which bytes of
// the file -shm its locks are.
//
// The package opens no database: package sqlite alone may do that.
package platform
