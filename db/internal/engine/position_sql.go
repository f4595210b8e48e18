package engine

import "relay/db/relay"

// Newest returns the position of the newest message or receipt, or 0.
func (x *Rx) Newest() (relay.Position, error) {
	p, err := x.C.Number("SELECT max(coalesce((SELECT max(position) FROM message), 0), coalesce((SELECT max(position) " +
		"FROM receipt), 0))")
	return relay.Position(p), err
}

// Oldest returns the position of the oldest message. Without messages, it is later than
// all that were removed.
func (x *Rx) Oldest() (relay.Position, error) {
	p, err := x.C.Number("SELECT coalesce((SELECT min(position) FROM message), (SELECT value + 1 FROM setting " +
		"WHERE name = 'last_position'))")
	return relay.Position(p), err
}
