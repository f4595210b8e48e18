package sqlite

// countNoRoom does nothing, because SQLite for Windows knows both codes for a full disk,
// and an exhausted quota has the same codes.
func countNoRoom() {}
