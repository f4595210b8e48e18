package directory

import (
	"encoding/json"
	"fmt"

	"relay/db/internal/engine"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// AcceptFrom returns the present field of a Mecha's profile, or nil.
func (d *Directory) AcceptFrom(t *engine.Tx, id relay.MechaNumber) (relay.AcceptFrom, error) {
	if from, known := d.accepts.Find(id); known {
		return from, nil
	}
	return d.readAcceptFrom(t, id)
}

func (d *Directory) readAcceptFrom(t *engine.Tx, id relay.MechaNumber) (from relay.AcceptFrom, err error) {
	var text string
	_, err = t.C.Row(func(r *sqlite.Rows) { text = r.Text(0) }, "SELECT accept_from FROM profile WHERE mecha = ?",
		int64(id))
	if err != nil {
		return nil, err
	}
	if text != "" {
		if err := json.Unmarshal([]byte(text), &from); err != nil || from == nil { // nil would allow everybody to write
			return nil, fmt.Errorf("%w: accept_from of Mecha %d cannot be read", sqlite.ErrDamaged, id)
		}
	}
	d.accepts.Put(id, from, 1+len(from))
	return from, nil
}

// maxAccepts is how much the writer remembers of accept_from: Mechas that got messages lately,
// and the entries of their lists. A Mecha that accepts everybody has nil.
const maxAccepts = 1 << 17
