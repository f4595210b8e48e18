package db

import "strings"

// filed is the position up to which all messages have been filed.
func (x *rx) filed() (p Position, err error) {
	_, err = x.c.row(func(r *rows) { p = Position(r.int(0)) }, "SELECT value FROM setting WHERE name = 'filed'")
	return p, err
}

// unfiled is where the messages of a Mecha are that may not have been filed: in
// a list, which may have others too, or somewhere behind a position.
type unfiled struct {
	mecha MechaID
	after Position
	list  string // JSON; "": look behind the position
	none  bool
}

// findUnfiled looks up the messages of a Mecha in a range that may not have been
// filed; of what it received and is pending, if nothing else matters.
func (x *rx) findUnfiled(id MechaID, from, to Position, pending bool) (unfiled, error) {
	after, err := x.filed()
	if err != nil || id == 0 {
		return unfiled{none: true}, err
	}
	u := unfiled{mecha: id, after: after}
	positions, many, known := x.d.tail.of(id, after, from, to, pending)
	if known && !many {
		u.none = len(positions) == 0
		u.list = list(positions, func(p Position) Position { return p })
	}
	return u, nil
}

// query gives their positions in a range (to is exclusive): "" if there are none.
func (u unfiled) query(d Direction, open, done bool, from, to Position) (text string, args []any) {
	if u.none || u.mecha == 0 {
		return "", nil
	}
	// One bound at each end: with two, SQLite might begin at the lower one.
	rows := "message m WHERE m.position >= ? AND m.position < ?"
	args = []any{int64(max(from, u.after+1)), int64(to)}
	if u.list != "" {
		rows, args = "json_each(?) j CROSS JOIN message m ON m.position = j.value WHERE TRUE", []any{u.list}
	}
	var whose []string
	if d != Out {
		in := "m.recipient = ?"
		switch {
		case !done:
			in = "m.recipient = ? AND m.open = 1"
		case !open:
			in = "m.recipient = ? AND m.open = 0"
		}
		whose, args = append(whose, in), append(args, int64(u.mecha))
	}
	if d != In {
		whose, args = append(whose, "m.sender = ?"), append(args, int64(u.mecha))
	}
	return "SELECT m.position FROM " + rows + " AND (" + strings.Join(whose, " OR ") + ")", args
}

// Whether message m has been filed.
const (
	filedAsReceived = "SELECT 1 FROM received f WHERE f.mecha = m.recipient AND f.open = m.open AND f.position = m.position"
	filedAsSent     = "SELECT 1 FROM sent f WHERE f.mecha = m.sender AND f.position = m.position"
)

// loadTail reads which messages a server that was killed had not filed, or not
// all of them: they are the first to be filed now.
func (w *writer) loadTail() error {
	x := rx{c: w.c, d: w.d}
	after, err := x.filed()
	if err != nil {
		return err
	}
	all := newRun(after)
	w.d.tail.gathering = all
	r := w.c.query("SELECT position, recipient, sender, open FROM message WHERE position > ? ORDER BY position", int64(after))
	for r.next() {
		p, to := Position(r.int(0)), MechaID(r.int(1))
		if all.add(p, to, MechaID(r.int(2))); r.int(3) == 0 {
			all.close(entry{to, p})
		}
	}
	if err := r.close(); err != nil {
		return err
	}
	if all.count > 0 {
		w.fileNext()
	}
	return nil
}

// fileAtOnce files a message: who is not the server must not leave it to later,
// for the server would not know of it.
func (t *tx) fileAtOnce(p Position, recipient, sender MechaID) error {
	if t.d.opts.Serve {
		return nil
	}
	if err := t.c.exec("INSERT INTO received (mecha, open, position) VALUES (?, 1, ?)", int64(recipient), int64(p)); err != nil {
		return err
	}
	return t.c.exec("INSERT INTO sent (mecha, position) VALUES (?, ?)", int64(sender), int64(p))
}

// fileAsDone moves a message's entry away from those that are pending. What is
// not filed yet will be filed as what it is then.
func (t *tx) fileAsDone(m *Message) error {
	e := entry{m.Recipient, m.Position}
	t.done = append(t.done, e)
	if r := t.d.tail.gathering; r != nil && r.hasPending(e) { // the writer alone changes it
		return nil
	}
	return t.c.exec("UPDATE received SET open = 0 WHERE mecha = ? AND open = 1 AND position = ?", int64(m.Recipient), int64(m.Position))
}

// file files a piece of the run in hand, if enough is due, and tells the tail
// what the transaction is about to commit: whoever reads it must find it there.
func (t *tx) file() error {
	if t.d.tail.gathering == nil {
		return nil // only a server files late
	}
	f := &t.w.filing
	f.tried = 0
	if n := len(f.received); n > 0 {
		f.due += filedFor * len(t.commit.Messages)
		if f.due >= min(filedAtOnce, n) {
			f.tried = min(f.due, n)
		}
	}
	t.d.tail.expect(t.commit.Messages)
	return t.filePiece(f)
}

func (t *tx) filePiece(f *filing) error {
	if f.tried == 0 {
		return nil
	}
	err := t.c.exec(`INSERT OR IGNORE INTO received (mecha, open, position) SELECT m.recipient, m.open, m.position
		FROM json_each(?) j CROSS JOIN message m ON m.position = j.value`, list(f.received[:f.tried], func(e entry) Position { return e.position }))
	if err != nil {
		return err
	}
	if err := t.fileAsSent(f.sent[:f.tried]); err != nil || f.tried < len(f.received) {
		return err
	}
	return t.c.exec("UPDATE setting SET value = ? WHERE name = 'filed'", int64(f.upto))
}

// fileAsSent writes entries as they are: a message's sender never changes.
func (t *tx) fileAsSent(entries []entry) error {
	args := make([]any, 0, 2*sentAtOnce)
	for len(entries) > 0 {
		n, text := sentAtOnce, insertSent+strings.Repeat(", (?, ?)", sentAtOnce-1)
		if len(entries) < n {
			n, text = 1, insertSent
		}
		args = args[:0]
		for _, e := range entries[:n] {
			args = append(args, int64(e.mecha), int64(e.position))
		}
		if err := t.c.exec(text, args...); err != nil {
			return err
		}
		entries = entries[n:]
	}
	return nil
}

const (
	insertSent = "INSERT OR IGNORE INTO sent (mecha, position) VALUES (?, ?)"
	sentAtOnce = 32
)

// filed notes, after a commit, what has been filed with it, and begins with the
// next run when there is one.
func (w *writer) filed() {
	f, tail := &w.filing, &w.d.tail
	if tail.gathering == nil {
		return
	}
	tail.gather(w.batch.done)
	if f.tried > 0 {
		f.received, f.sent, f.due = f.received[f.tried:], f.sent[f.tried:], 0
		if len(f.received) == 0 {
			tail.finish()
		}
	}
	if len(f.received) == 0 && tail.gathering.count >= runLength {
		w.fileNext()
	}
}

func (w *writer) fileNext() {
	r := w.d.tail.seal(w.last)
	w.filing = filing{received: sorted(r.received, r.count), sent: sorted(r.sent, r.count), upto: r.upto}
}

// fileAll files what is left when the store closes. If it fails, the next start does.
func (w *writer) fileAll() {
	left := func() int { return len(w.filing.received) }
	for w.d.tail.gathering != nil && w.failed() == nil && !w.d.diskLow.Load() {
		if left() == 0 {
			if w.d.tail.gathering.count == 0 {
				return
			}
			w.fileNext()
		}
		before := left()
		w.filing.due = filedAtEnd
		w.commit(nil)
		if left() == before {
			return
		}
	}
}
