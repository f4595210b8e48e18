package directory

import (
	"context"
	"sync/atomic"
	"time"

	"relay/db/internal/engine"
	"relay/db/relay"
)

// saw notes that a Mecha has just made a request.
func (d *Directory) saw(id relay.MechaNumber, now time.Time) {
	d.lastSeen(id, 0).Store(now.UnixMilli())
}

// lastSeen returns the time of a Mecha's last request, in Unix ms, or first.
func (d *Directory) lastSeen(id relay.MechaNumber, first int64) *atomic.Int64 {
	v, ok := d.seen.Load(id)
	if !ok {
		at := new(atomic.Int64)
		at.Store(first)
		v, _ = d.seen.LoadOrStore(id, at)
	}
	return v.(*atomic.Int64)
}

// LastRequest returns the time of a Mecha's last request, as far as this process knows it without
// reading the file, or zero. It does not wait. Any goroutine may call it.
func (d *Directory) LastRequest(id relay.MechaNumber) time.Time {
	if v, ok := d.seen.Load(id); ok {
		return relay.UnixMilli(v.(*atomic.Int64).Load())
	}
	return time.Time{}
}

// LastSeen returns the time of a Mecha's last request, or zero. After a restart, it may
// be up to about a minute too early. Any goroutine may call it.
func (d *Directory) LastSeen(ctx context.Context, caller, id relay.MechaNumber) (time.Time, error) {
	if v, ok := d.seen.Load(id); ok {
		return relay.UnixMilli(v.(*atomic.Int64).Load()), nil
	}
	ms, err := engine.Get(ctx, d.w.As(caller).Point, func(x *engine.Rx) (int64, error) {
		return x.C.Number(lastUse, int64(id))
	})
	if err != nil {
		return time.Time{}, err
	}
	return relay.UnixMilli(d.lastSeen(id, ms).Load()), nil
}

const lastUse = "SELECT max(u.last_used_at) FROM mecha_key k JOIN key_use u ON u.key = k.id WHERE k.mecha = ?"

// Presence returns when another Mecha was last seen, as LastSeen does. visible is false
// if the caller may not know that the Mecha exists (PROTOCOL §5, Profile). Any goroutine
// may call it.
func (d *Directory) Presence(
	ctx context.Context, caller relay.Mecha, id relay.MechaNumber,
) (seen time.Time, visible bool, err error) {
	crew, known := d.crewOnly.Find(id)
	if !known {
		epoch := d.crewOnly.Epoch()
		err = d.w.As(caller.Number).Point(ctx, func(x *engine.Rx) error {
			some, err := Entries(x, false, "WHERE m.id = ?", int64(id))
			if err == nil && len(some) > 0 && some[0].Visibility == relay.CrewOnly {
				crew = some[0].Address.Crew()
			}
			return err
		})
		if err != nil {
			return time.Time{}, false, err
		}
		d.crewOnly.PutSince(epoch, id, crew, 1)
	}
	if crew != "" && crew != caller.Address.Crew() {
		return time.Time{}, false, nil
	}
	seen, err = d.LastSeen(ctx, caller.Number, id)
	return seen, true, err
}

// LearnPresence reads what Presence returns for a Mecha, so that KnownPresence has it. It does nothing for an
// unknown Mecha. Any goroutine may call it.
func (d *Directory) LearnPresence(ctx context.Context, caller relay.Mecha, to relay.Address) error {
	if id, known := d.w.Mechas.ID.Find(to); known {
		if _, _, known := d.KnownPresence(caller, relay.MechaNumber(id)); known {
			return nil
		}
	}
	id, err := engine.Get(ctx, d.w.As(caller.Number).Point, func(x *engine.Rx) (int64, error) {
		return x.Mechas.Find(x.C, to)
	})
	if err == nil && id != 0 {
		_, _, err = d.Presence(ctx, caller, relay.MechaNumber(id))
	}
	return err
}

// KnownPresence is Presence without reading the file. known is false if the answer is not
// in memory. It does not wait. Any goroutine may call it.
func (d *Directory) KnownPresence(caller relay.Mecha, id relay.MechaNumber) (seen time.Time, visible, known bool) {
	crew, known := d.crewOnly.Find(id)
	at, ok := d.seen.Load(id)
	if !known || !ok {
		return time.Time{}, false, false
	}
	return relay.UnixMilli(at.(*atomic.Int64).Load()), crew == "" || crew == caller.Address.Crew(), true
}

// maxCrews is how many Mechas Directory.crewOnly remembers: the crew of a Mecha that only its
// own crew may see, or "" if everybody may.
const maxCrews = 10_000
