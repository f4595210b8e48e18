package turn

// Kept returns how much a Stile remembers of its owners; 0 if nobody has a turn or waits.
func (s *Stile[O]) Kept() int { return len(s.owners) + len(s.ring) }

// Kept returns how much a Queue counts of its owners; 0 if it is empty.
func (q *Queue[O, T]) Kept() int { return len(q.of) + len(q.wishes) + q.bytes }
