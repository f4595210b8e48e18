package late

// Lists calls f with each list of positions that the memory has for a table. It returns after
// which position these are; the greatest one if there is no memory.
func (x *Index[T, P]) Lists(table int, f func([]P)) (after P) {
	x.mu.RLock()
	segments := x.segments()
	x.mu.RUnlock()
	after = 1<<63 - 1
	for _, s := range segments {
		if s == nil {
			continue
		}
		after = min(after, s.after)
		x.mu.RLock() // for each segment, because the writer waits for it
		for _, list := range s.tables[table] {
			f(list)
		}
		x.mu.RUnlock()
	}
	return after
}
