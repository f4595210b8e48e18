package look

import (
	"relay/db/internal/directory"
	"relay/db/internal/engine"
	"relay/db/relay"
)

// Directory returns up to limit registered Mechas after an address, by address, without
// their cards.
func (i *Inspector) Directory(after relay.Address, limit int) ([]relay.Entry, error) {
	return See(i, func(x *engine.Rx) ([]relay.Entry, error) {
		return directory.Entries(x, false, "WHERE m.address > ? AND m.removed_at IS NULL ORDER BY m.address LIMIT ?",
			string(after), int64(limit))
	})
}

// Entry reads one Mecha with its card. Error: MechaNotFound.
func (i *Inspector) Entry(a relay.Address) (relay.Entry, error) {
	return See(i, func(x *engine.Rx) (relay.Entry, error) { return directory.ReadEntry(x, a) })
}

// KeysOf lists the keys of one address, or all if it is "", the oldest first.
func (i *Inspector) KeysOf(a relay.Address) ([]*relay.Key, error) {
	return See(i, func(x *engine.Rx) ([]*relay.Key, error) { return directory.KeysOf(x, a) })
}
