package imports

import (
	"slices"

	"relay/db/relay"
)

// readCard makes a profile from an A2A agent card: its name, description, version and
// skills. The profile keeps the card. Errors: those of relay.ReadProfile.
func readCard(body []byte) (relay.Profile, error) {
	// The card is read alone first, because it might close the brackets put around it.
	err := relay.ReadObject(body, nil, func(string, []byte) error { return nil })
	if relay.ErrorCode(err) == relay.InvalidJSON {
		return relay.Profile{}, err
	}
	return relay.ReadProfile(slices.Concat([]byte(`{"card":`), body, []byte(`}`)))
}
