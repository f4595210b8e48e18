package relay

import (
	"encoding/json"
	"time"
)

// Entry is a registered Mecha with its profile, as the directory has it.
type Entry struct {
	Mecha
	Profile
	Revision  int64 // the position of the Mecha's last change, greater than every earlier revision of any Mecha
	UpdatedAt time.Time
	Removed   bool // the Mecha is removed: only its ID, Address, CreatedAt and Revision count
}

// VisibleTo reports whether viewer, who knows the exact address, may learn that this
// Mecha exists (PROTOCOL §5, Profile).
func (e *Entry) VisibleTo(viewer Address) bool {
	return e.Visibility != CrewOnly || e.Address.Crew() == viewer.Crew()
}

// StoredProfile is a profile in the form in which the store keeps it. The machine that
// accepts the profile makes the JSON once, so that all copies of the store have the same
// bytes.
type StoredProfile struct {
	Body       []byte // the profile as JSON, without its card
	Card       []byte // the agent card that the profile came from; nil if none
	Visibility Visibility
	AcceptFrom []byte // the field of the profile, as JSON; nil if the profile does not have it
	NoLearn    bool   // the profile's field learn is false
}

// Stored returns the profile in the form in which the store keeps it. p should have
// passed Check.
func (p Profile) Stored() StoredProfile {
	s := StoredProfile{Card: p.Card, Visibility: p.Visibility}
	s.NoLearn = p.Learn != nil && !*p.Learn
	p.Card = nil
	body, err := json.Marshal(p)
	if err != nil {
		panic(err) // impossible: a Profile without a card has only texts, lists and maps of texts
	}
	s.Body = body
	if p.AcceptFrom != nil {
		s.AcceptFrom, err = json.Marshal(p.AcceptFrom)
		if err != nil {
			panic(err) // impossible: these are texts
		}
	}
	return s
}

// PutProfile is the write that replaces a Mecha's profile (PROTOCOL §5, Profile).
type PutProfile struct {
	At       time.Time
	Key      KeyNumber // the Mecha's key; 0: the relay's operator puts the profile without one
	Address  Address
	Register bool // registers the Mecha if it is new; if false, a new Mecha is MechaNotFound
	Profile  StoredProfile
	Nonce    NonceHash
}

func (p *PutProfile) When() time.Time { return p.At }

func (p *PutProfile) setTime(at time.Time) { p.At = at }

func (p *PutProfile) Size() int {
	return 256 + len(p.Profile.Body) + len(p.Profile.Card) + len(p.Profile.AcceptFrom)
}

func (p *PutProfile) kind() byte { return kindPutProfile }

func (p *PutProfile) fields(f *form) {
	f.time(&p.At)
	integer(f, &p.Key)
	text(f, &p.Address)
	f.bool(&p.Register)
	f.blob(&p.Profile.Body)
	f.blob(&p.Profile.Card)
	text(f, &p.Profile.Visibility)
	f.blob(&p.Profile.AcceptFrom)
	integer(f, &p.Nonce)
	f.bool(&p.Profile.NoLearn)
}

// RemoveMecha is the write that removes a Mecha: its keys are revoked, its profile is
// deleted, messages to it are refused. Its messages stay in the store; if the Mecha is
// registered again, it has them again.
type RemoveMecha struct {
	At      time.Time
	Address Address
}

func (r *RemoveMecha) When() time.Time { return r.At }

func (r *RemoveMecha) setTime(at time.Time) { r.At = at }

func (r *RemoveMecha) Size() int { return 64 }

func (r *RemoveMecha) kind() byte { return kindRemoveMecha }

func (r *RemoveMecha) fields(f *form) {
	f.time(&r.At)
	text(f, &r.Address)
}
