package learning

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"relay/db/internal/engine"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// An exchange is a message that named a search and has ended. It waits in the table `exchange` until
// it is counted. A row has all exchanges of a transaction, so that an acknowledgement needs no row of
// its own.
type exchange struct {
	recipient relay.MechaNumber
	position  relay.Position // of the receipt that ended it
	sender    relay.MechaNumber
	completed bool
	hour      int64
	words     string // as SoughtWords returns them
}

// inOrderOfCount is the order in which a round counts: by the recipients, then as the exchanges ended.
func inOrderOfCount(a, b exchange) int {
	return cmp.Or(cmp.Compare(a.recipient, b.recipient), cmp.Compare(a.position, b.position))
}

// keepExchanges writes a row with the exchanges that this transaction has brought since the last call.
func (l *Learning) keepExchanges(t *engine.Tx) error {
	ended := l.brought
	if len(ended) == 0 {
		return nil
	}
	first := ended[0].position
	text := writeExchanges(first, ended)
	l.brought = ended[:0]
	return t.C.Exec("INSERT INTO exchange (position, ended) VALUES (?, ?)", int64(first), text)
}

// writeExchanges returns the text of a row. For each exchange it has a line of six numbers, and then the
// words, one a line. The last number is the length of the words in bytes; the position is relative to
// the row's.
func writeExchanges(row relay.Position, all []exchange) string {
	b := make([]byte, 0, 128*len(all))
	for _, e := range all {
		completed := int64(0)
		if e.completed {
			completed = 1
		}
		for _, n := range [...]int64{int64(e.position - row), int64(e.recipient), int64(e.sender), completed, e.hour} {
			b = append(strconv.AppendInt(b, n, 10), ' ')
		}
		b = append(strconv.AppendInt(b, int64(len(e.words)), 10), '\n')
		b = append(append(b, e.words...), '\n')
	}
	return string(b)
}

// ReadExchanges appends the exchanges of a row. Their words are parts of its text.
func ReadExchanges(all []exchange, row relay.Position, text string) ([]exchange, error) {
	for len(text) > 0 {
		line, rest, _ := strings.Cut(text, "\n")
		var n [6]int64
		for i := range n {
			var number string
			number, line, _ = strings.Cut(line, " ")
			v, err := strconv.ParseInt(number, 10, 64)
			if err != nil || v < 0 {
				return nil, errExchanges()
			}
			n[i] = v
		}
		if n[5] >= int64(len(rest)) || rest[n[5]] != '\n' {
			return nil, errExchanges()
		}
		all = append(all, exchange{recipient: relay.MechaNumber(n[1]), position: row + relay.Position(n[0]),
			sender: relay.MechaNumber(n[2]), completed: n[3] != 0, hour: n[4], words: rest[:n[5]]})
		text = rest[n[5]+1:]
	}
	return all, nil
}

// exchangesUpto reads the exchanges that wait, up to a position, as they ended.
func exchangesUpto(x *engine.Rx, upto relay.Position) (all []exchange, err error) {
	r := x.C.Query("SELECT position, ended FROM exchange WHERE position <= ? ORDER BY position", int64(upto))
	for err == nil && r.Next() {
		all, err = ReadExchanges(all, relay.Position(r.Int(0)), r.Text(1))
	}
	return all, cmp.Or(r.Close(), err)
}

// A countRound has the exchanges of a round of counting. The writer keeps it, so that the
// transactions of a round read and sort the exchanges once.
type countRound struct {
	upto relay.Position // 0 without a round
	all  []exchange     // exchanges up to there that waited when the round began, in the order of the count
	// The addresses of senders in this round.
	senders map[relay.MechaNumber]relay.Address
}

func (r *countRound) forget() { *r = countRound{} }

// round returns the remaining exchanges of the present round, and the position up to which it counts.
// Without a round, it begins one, and begun is false.
func (l *Learning) round(t *engine.Tx) (rest []exchange, upto relay.Position, begun bool, err error) {
	if err := l.keepExchanges(t); err != nil {
		return nil, 0, false, err
	}
	var next exchange
	begun, err = t.C.Row(func(r *sqlite.Rows) {
		upto, next.recipient, next.position = relay.Position(r.Int(0)), relay.MechaNumber(r.Int(1)), relay.Position(r.Int(2))
	}, "SELECT upto, recipient, position FROM counting")
	if err != nil {
		return nil, 0, false, err
	}
	if !begun {
		upto = t.Last
	}
	known := &l.counts.round
	if !begun || known.upto != upto {
		all, err := exchangesUpto(&t.Rx, upto)
		if err != nil {
			return nil, 0, false, err
		}
		slices.SortFunc(all, inOrderOfCount)
		*known = countRound{upto: upto, all: all, senders: map[relay.MechaNumber]relay.Address{}}
	}
	i, _ := slices.BinarySearchFunc(known.all, next, inOrderOfCount)
	return known.all[i:], upto, begun, nil
}

// continueRound notes which exchange of a round comes next.
func (l *Learning) continueRound(t *engine.Tx, upto relay.Position, next exchange) error {
	return t.C.Exec("INSERT OR REPLACE INTO counting (id, upto, recipient, position) VALUES (1, ?, ?, ?)",
		int64(upto), int64(next.recipient), int64(next.position))
}

// endRound removes the exchanges of a round.
func (l *Learning) endRound(t *engine.Tx, upto relay.Position) error {
	l.counts.round.forget()
	if err := t.C.Exec("DELETE FROM exchange WHERE position <= ?", int64(upto)); err != nil {
		return err
	}
	return t.C.Exec("DELETE FROM counting")
}

// dropExchanges removes the waiting exchanges of which a Mecha was the recipient or, with sent,
// the sender.
func (l *Learning) dropExchanges(t *engine.Tx, of relay.MechaNumber, sent bool) error {
	if err := l.keepExchanges(t); err != nil {
		return err
	}
	if n, err := t.C.Number(someExchange); err != nil || n == 0 {
		return err
	}
	l.counts.round.forget()
	left := map[relay.Position]string{} // the texts of the rows that change
	var broken error
	r := t.C.Query("SELECT position, ended FROM exchange ORDER BY position")
	for broken == nil && r.Next() {
		var all []exchange
		row := relay.Position(r.Int(0))
		all, broken = ReadExchanges(nil, row, r.Text(1))
		kept := slices.DeleteFunc(slices.Clone(all), func(e exchange) bool {
			return e.recipient == of || sent && e.sender == of
		})
		if len(kept) < len(all) {
			left[row] = writeExchanges(row, kept)
		}
	}
	if err := cmp.Or(r.Close(), broken); err != nil {
		return err
	}
	return t.Erasing(func() error { return l.rewriteExchanges(t, left) })
}

// rewriteExchanges replaces the texts of rows, and deletes rows without exchanges.
func (l *Learning) rewriteExchanges(t *engine.Tx, left map[relay.Position]string) (err error) {
	for row, text := range left {
		if text == "" {
			err = t.C.Exec("DELETE FROM exchange WHERE position = ?", int64(row))
		} else {
			err = t.C.Exec("UPDATE exchange SET ended = ? WHERE position = ?", text, int64(row))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func errExchanges() error {
	return fmt.Errorf("%w: the exchanges that wait to be counted cannot be read", sqlite.ErrDamaged)
}
