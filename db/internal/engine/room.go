package engine

import "time"

// A Room holds everything that the store has for one noun: its rows, its caches, and its
// background tasks. The writer knows rooms by these hooks alone. It calls them on its
// goroutine, in the order in which the rooms are listed (newRooms). A room embeds Quiet
// for the hooks that it does not need.
type Room interface {
	Background

	// Begin is called when a transaction begins, and again if it is made again. The room
	// forgets what it noted of a transaction that was not committed.
	Begin(t *Tx)
	// Applied is called after a job of the transaction has been applied, but not refused.
	Applied(t *Tx, j Job)
	// BeforeCommit writes local rows just before the commit, so that they need no transaction of
	// their own. An error fails the transaction.
	BeforeCommit(t *Tx) error
	// AfterCommit is called after the commit, unless the commit failed.
	AfterCommit(t *Tx)
	// Forget drops what the room has read from the file: a transaction was rolled back, or
	// another process has written to the file. It may come between Begin and the first job.
	Forget()
	// Flush writes the rows that wait in memory. The store is closing.
	Flush()
	// Kinds adds the writes of the noun to the table of writes. It is called once, before
	// the store is used.
	Kinds(*Table)
}

// Background is a background task of the store, such as the expiry of messages. The
// writer checks for it before each transaction and, while no jobs come, every TasksEvery.
type Background interface {
	// Due reports whether there is work. now is the time of the store's clock.
	Due(now time.Time) bool
	// Do does the work. It may commit transactions of its own. While jobs wait
	// (Store.Idle is false), it may instead add a job to their transaction (Store.Join).
	Do(now time.Time)
}

// Quiet has the hooks of a room that does nothing.
type Quiet struct{}

func (Quiet) Begin(*Tx)              {}
func (Quiet) Applied(*Tx, Job)       {}
func (Quiet) BeforeCommit(*Tx) error { return nil }
func (Quiet) AfterCommit(*Tx)        {}
func (Quiet) Forget()                {}
func (Quiet) Flush()                 {}
func (Quiet) Kinds(*Table)           {}
func (Quiet) Due(time.Time) bool     { return false }
func (Quiet) Do(time.Time)           {}
