package relay

import "slices"

// AcceptFrom says who may write to a Mecha (PROTOCOL §3, Who may write to me): addresses,
// as in bob^demo, and whole crews, as in *^demo. An empty list means nobody, nil
// everybody.
type AcceptFrom []string

// Accepts reports whether a sender may write.
func (a AcceptFrom) Accepts(sender Address) bool {
	return a == nil || slices.Contains(a, string(sender)) || slices.Contains(a, "*^"+sender.Crew())
}

func (f *profileFaults) acceptFrom(all AcceptFrom) {
	if len(all) > maxAccept {
		f.fail("accept_from", "has more than 100 entries")
	}
	for _, text := range all {
		if _, err := ParseRecipient(text); err != nil {
			f.fail("accept_from", "must be addresses, as in bob^demo, and crews, as in *^demo")
		}
	}
}
