package db

import (
	"relay/db/internal/engine"
	"relay/db/relay"
)

// newTable has a row for each kind of write, from the rooms.
func newTable(rooms []engine.Room) *engine.Table {
	var all engine.Table
	for _, r := range rooms {
		r.Kinds(&all)
	}
	engine.Add(&all, engine.Kind[*relay.Act, any]{Decide: (*engine.Tx).Act})
	engine.Add(&all, engine.Kind[*relay.Activate, engine.None]{Silent: true, // see package replication
		Decide: func(*engine.Tx, *relay.Activate) (engine.None, error) { return engine.None{}, nil }})
	return &all
}
