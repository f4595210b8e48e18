package db

// A store that is opened with Options.Discard keeps nothing. It is there for
// one purpose: to measure everything that a send costs but the store. A send
// goes the whole way, through the queue to the writer and back, gets a place in
// the order and an id, rings the bell, and is forgotten.

// Discards tells that nothing is kept: every 201 is a lie. Safe for concurrent use.
func (d *DB) Discards() bool { return d.opts.Discard }

// discard stands for a transaction. Sends succeed; other writes of clients are
// refused, for nobody measures them and their answers would be made up.
func (t *tx) discard(ops []*op) {
	for _, o := range ops {
		switch write := o.write.(type) {
		case *SendMessage:
			write.record(t, t.position(write.At), 0, 0)
		case *expireDue, *touchKeys: // the writer's own
		default:
			o.err = Errorf(Overloaded, "this relay keeps nothing (--store none): it takes messages only, and forgets them")
		}
	}
	t.w.last = t.last
}
