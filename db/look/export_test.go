package look

import "relay/db/internal/sqlite"

// Watching is the connection of Changed.
func (i *Inspector) Watching() *sqlite.Conn { return i.watch.c }
