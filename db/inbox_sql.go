package db

import "context"

// Inbox is what waits for a Mecha.
type Inbox struct {
	Pending    int
	Oldest     MessageID // "" if nothing waits
	Newest     MessageID
	ByPriority map[string]int
}

// Inbox counts what waits for a Mecha. It walks the pending messages only.
func (d *DB) Inbox(ctx context.Context, id MechaID) (in Inbox, err error) {
	err = d.read(ctx, func(x *rx) error {
		in, err = x.inbox(id)
		return err
	})
	return in, err
}

func (x *rx) inbox(id MechaID) (Inbox, error) {
	in := Inbox{ByPriority: map[string]int{}}
	counts := map[int64]int{}
	var oldest, newest Position
	r := x.c.query(`SELECT priority, count(*), min(position), max(position) FROM message INDEXED BY message_recipient
		WHERE recipient = ? AND open = 1 AND (expires_at IS NULL OR expires_at > ?) GROUP BY priority`, int64(id), x.now.UnixMilli())
	for r.next() {
		counts[r.int(0)] = int(r.int(1))
		in.Pending += int(r.int(1))
		if p := Position(r.int(2)); oldest == 0 || p < oldest {
			oldest = p
		}
		newest = max(newest, Position(r.int(3)))
	}
	if err := r.close(); err != nil {
		return in, err
	}
	for word, n := range counts {
		text, err := x.word(word)
		if err != nil {
			return in, err
		}
		in.ByPriority[text] = n
	}
	if in.Pending > 0 {
		in.Oldest, in.Newest = x.d.ids.message(oldest), x.d.ids.message(newest)
	}
	return in, nil
}

// countOpen counts a mailbox's pending messages from the index alone.
func (x *rx) countOpen(id MechaID) (n int, err error) {
	_, err = x.c.row(func(r *rows) { n = int(r.int(0)) },
		"SELECT count(*) FROM message INDEXED BY message_recipient WHERE recipient = ? AND open = 1", int64(id))
	return n, err
}
