package relay

import (
	"encoding/json"
	"time"
)

// Entry is a registered Mecha with its profile, as the directory has it.
type Entry struct {
	Mecha
	Profile
	Revision  int64 // grows with every change of any entry
	UpdatedAt time.Time
	Removed   bool // only ID, Address and Revision are set
}

// VisibleTo tells whether a Mecha may learn of this one by its exact address.
func (e *Entry) VisibleTo(viewer Address) bool {
	return e.Visibility != CrewOnly || e.Address.Crew() == viewer.Crew()
}

// StoredProfile is a profile in the form in which the store keeps it. The JSON is
// made once, by the machine that takes the profile.
type StoredProfile struct {
	Body       []byte // the profile as JSON, without its card
	Card       []byte // the agent card it came from; nil if none
	Visibility Visibility
}

// Stored gives the profile as the store keeps it.
func (p Profile) Stored() StoredProfile {
	s := StoredProfile{Card: p.Card, Visibility: p.Visibility}
	p.Card = nil
	body, err := json.Marshal(p)
	if err != nil {
		panic(err) // a Profile without a card is texts, lists and maps of texts
	}
	s.Body = body
	return s
}

// PutProfile is the write that replaces a Mecha's profile.
type PutProfile struct {
	At       time.Time
	Address  Address
	Register bool // make the Mecha if it is new; else MechaNotFound
	Profile  StoredProfile
	Nonce    NonceHash
}

// When implements Write.
func (p *PutProfile) When() time.Time { return p.At }

// Size implements Write.
func (p *PutProfile) Size() int { return 256 + len(p.Profile.Body) + len(p.Profile.Card) }

func (p *PutProfile) kind() byte { return kindPutProfile }

func (p *PutProfile) fields(f *form) {
	f.time(&p.At)
	text(f, &p.Address)
	f.bool(&p.Register)
	f.blob(&p.Profile.Body)
	f.blob(&p.Profile.Card)
	text(f, &p.Profile.Visibility)
	integer(f, &p.Nonce)
}

// RemoveMecha is the write that removes a Mecha: its keys end, its profile goes,
// messages to it are refused. Its messages stay, and it has them again if it is
// registered again.
type RemoveMecha struct {
	At      time.Time
	Address Address
}

// When implements Write.
func (r *RemoveMecha) When() time.Time { return r.At }

// Size implements Write.
func (r *RemoveMecha) Size() int { return 64 }

func (r *RemoveMecha) kind() byte { return kindRemoveMecha }

func (r *RemoveMecha) fields(f *form) {
	f.time(&r.At)
	text(f, &r.Address)
}
