package client

// recent remembers the last messages that were settled, with the number of the attempt. It is
// not for concurrent use.
type recent struct {
	attempts map[string]int
	order    []string // a ring of the ids, once it is full
	next     int
}

// attempt returns the attempt at which a message was settled; 0: it is not known.
func (r *recent) attempt(id string) int { return r.attempts[id] }

func (r *recent) add(id string, attempt int) {
	if r.attempts == nil {
		r.attempts = map[string]int{}
	}
	if _, known := r.attempts[id]; !known {
		if len(r.order) < rememberedDone {
			r.order = append(r.order, id)
		} else {
			delete(r.attempts, r.order[r.next])
			r.order[r.next] = id
			r.next = (r.next + 1) % len(r.order)
		}
	}
	r.attempts[id] = attempt
}
