// Package file has the operations on a database file as a whole: create it, open it,
// bring its schema up to date, check it, copy it, restore it.
//
// Every operation says whether it may run while a server has the file open. A server holds the lock of the file
// (Lock): path + ".lock", and on Linux the file itself. A file that has several names is refused, because each
// name would have a log of its own. Check and Backup read a consistent snapshot; while they run, SQLite cannot
// restart the log of a served file. Restore needs the lock.
//
// The package knows the schema and the rules between its rows (Check), but not how
// writes change them: that is package db, which opens its files here. The commands
// backup and restore, and those of rings, call it, too. Its functions are safe for
// concurrent use.
//
// A column begins in schema.sql and in upgrades (schema.go); a test compares them. Then come its room, package relay
// and http/record.go.
package file
