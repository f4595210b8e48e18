package file

// Pretend makes this program know more upgrades of the schema, until undo is called.
func Pretend(steps ...string) (undo func()) {
	before := upgrades
	upgrades = append(before[:len(before):len(before)], steps...)
	return func() { upgrades = before }
}
