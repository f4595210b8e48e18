package file

// Pretend makes this program one that knows a step of the schema more than it
// does, until undo is called.
func Pretend(step string) (undo func()) {
	before := upgrades
	upgrades = append(before[:len(before):len(before)], step)
	return func() { upgrades = before }
}
