package imports

import (
	"errors"
	"os"
	"testing"

	"relay/db/relay"
)

const small = `{"name":"Echo","description":"says it again","version":"0.1","skills":[{"id":"echo","name":"Echo","description":"","tags":[]}]}`

func TestACardIsReadAlone(t *testing.T) {
	p, err := readCard([]byte(small))
	if err != nil || p.DisplayName != "Echo" || p.Description != "says it again" || p.Version != "0.1" ||
		len(p.Skills) != 1 || p.Skills[0].ID != "echo" || string(p.Card) != small || p.Visibility != relay.Public {
		t.Errorf("%+v, %v", p, err)
	}
	for _, text := range []string{``, `null`, `[]`, `"x"`, small + small, `{},"visibility":"unlisted"`, `{"x":1`, `{}}`, "{\"name\":\"\xff\"}"} {
		if _, err := readCard([]byte(text)); relay.ErrorCode(err) != relay.InvalidJSON {
			t.Errorf("card %s: %v", text, err)
		}
	}
}

// A card never panics, and is refused with a reason.
func FuzzReadCard(f *testing.F) {
	for _, seed := range []string{``, `{}`, small, `{"skills":[{"id":"x"}]}`, `{},"visibility":"unlisted"`, "{\"x\":\"\xff\"}"} {
		f.Add([]byte(seed))
	}
	geo, err := os.ReadFile("../../db/relay/testdata/card-geo.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(geo)
	f.Fuzz(func(t *testing.T, body []byte) {
		if _, err := readCard(body); err != nil {
			var e *relay.Error
			if !errors.As(err, &e) || e.Detail == "" {
				t.Fatalf("%q: %v", body, err)
			}
		}
	})
}
