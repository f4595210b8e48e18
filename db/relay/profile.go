package relay

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"relay/db/strict"
)

// Visibility says which Mechas may find this one (PROTOCOL §5, Profile). The zero
// value means public.
type Visibility string

// The visibilities.
const (
	Public   Visibility = "public"
	CrewOnly Visibility = "crew"     // Mechas of another crew do not learn that this one exists
	Unlisted Visibility = "unlisted" // searches do not find it; a Mecha that knows the exact address may read it
)

// visibilityNumbers are the numbers that schema.sql gives the visibilities.
var visibilityNumbers = map[Visibility]int64{"": 0, Public: 0, CrewOnly: 1, Unlisted: 2}

// Number returns the number of a visibility in the store.
func (v Visibility) Number() int64 { return visibilityNumbers[v] }

// Profile is a Mecha's description of itself (PROTOCOL §5, Profile). All fields are
// optional. Check checks their limits.
type Profile struct {
	DisplayName string   `json:"display_name,omitempty"`
	Description string   `json:"description,omitempty"`
	Details     string   `json:"details,omitempty"`
	Version     string   `json:"version,omitempty"`
	Tags        []string `json:"tags,omitempty"` // "travel/flights" is a child of "travel"
	Examples    []string `json:"examples,omitempty"`
	// nil: as in the card; empty: none, even if the card has some
	Skills       []Skill           `json:"skills,omitzero"`
	Languages    []string          `json:"languages,omitempty"`
	MessageTypes []string          `json:"accepts_message_types,omitempty"`
	Links        map[string]string `json:"links,omitempty"`
	Metadata     map[string]string `json:"metadata,omitempty"`
	Visibility   Visibility        `json:"visibility,omitempty"`
	// after so many attempts at a message the relay gives it up; 0: the server's setting
	MaxAttempts int             `json:"max_attempts,omitempty"`
	AcceptFrom  AcceptFrom      `json:"accept_from,omitzero"` // nil: all may write to the Mecha
	Learn       *bool           `json:"learn,omitempty"`      // false: discovery learns nothing about the Mecha; nil: true
	Card        json.RawMessage `json:"card,omitempty"`       // the A2A agent card that the profile came from
}

// Skill is one thing that a Mecha can do, as in an A2A agent card.
type Skill struct {
	ID           string   `json:"id,omitempty"`
	Name         string   `json:"name,omitempty"`
	Description  string   `json:"description,omitempty"`
	Tags         []string `json:"tags,omitempty"`
	Examples     []string `json:"examples,omitempty"`
	InputModes   []string `json:"input_modes,omitempty"`
	OutputModes  []string `json:"output_modes,omitempty"`
	MessageTypes []string `json:"message_types,omitempty"`
}

// agentCard has the fields of an A2A agent card (specification 1.0) that a profile has, too.
type agentCard struct {
	Name        string      `json:"name"`
	Description string      `json:"description"`
	Version     string      `json:"version"`
	Skills      []cardSkill `json:"skills"`
}

type cardSkill struct {
	ID          string   `json:"id"`
	Name        string   `json:"name"`
	Description string   `json:"description"`
	Tags        []string `json:"tags"`
	Examples    []string `json:"examples"`
	InputModes  []string `json:"inputModes"`
	OutputModes []string `json:"outputModes"`
}

func (c *agentCard) skills() (all []Skill) {
	for _, s := range c.Skills {
		all = append(all, Skill{ID: s.ID, Name: s.Name, Description: s.Description, Tags: s.Tags,
			Examples: s.Examples, InputModes: s.InputModes, OutputModes: s.OutputModes})
	}
	return all
}

var profileFields = []string{"display_name", "description", "details", "version", "tags", "examples",
	"skills", "languages", "accepts_message_types", "links", "metadata", "visibility", "max_attempts", "accept_from",
	"learn", "card"}

// replyFields are the fields that the relay adds when it returns a profile. It also
// adds the visibility "public" to a profile without one.
var replyFields = []string{"mecha_id", "name", "crew", "created_at", "updated_at", "online", "last_seen"}

// maxReply is an upper bound of the bytes that replyFields take.
const maxReply = 1 << 10

// ReadProfile reads a profile from JSON and checks it (PROTOCOL §5, Profile). Fields
// that the profile leaves out are taken from its card, if it has one. Unknown fields
// are ignored. Errors: InvalidJSON, InvalidRequest naming the field, PayloadTooLarge
// (over 64 KiB).
//
// Some bytes do not count towards the size: the fields that the relay adds to a returned
// profile, with the line feed at its end, and the fields that equal the card's. So a
// client can write back a profile that it has read.
func ReadProfile(body []byte) (Profile, error) {
	var p Profile
	if len(body) > 2*maxProfile+maxReply { // too long with any card
		return p, errProfileTooLarge()
	}
	added, sizes := 0, map[string]int{} // bytes of the relay's own fields; bytes of each field with its name
	err := ReadObject(body, profileFields, func(name string, value []byte) error {
		if name == "card" && !strict.IsNull(value) && !strict.IsObject(value) {
			return FieldErrorf(InvalidRequest, "card", "must be a JSON object")
		}
		sizes[name] = len(`"":,`) + len(name) + len(value)
		if slices.Contains(replyFields, name) || name == "visibility" && string(value) == `"public"` {
			added += sizes[name]
		}
		return nil
	})
	size := len(bytes.TrimSuffix(body, []byte("\n"))) - min(added, maxReply)
	if size > maxProfile && (err != nil || sizes["card"] == 0) {
		return p, errProfileTooLarge()
	}
	if err != nil {
		return p, err
	}
	if err := json.Unmarshal(body, &p); err != nil {
		return p, wrongType[Skill](err, "", body)
	}
	if strict.IsNull(p.Card) {
		p.Card = nil
	}
	if len(p.Card) > 0 {
		copied, err := p.takeCard()
		if err != nil {
			return p, err
		}
		for _, name := range copied {
			size -= sizes[name]
		}
	}
	if size > maxProfile {
		return p, errProfileTooLarge()
	}
	if p.Visibility == "" {
		p.Visibility = Public
	}
	return p, p.Check()
}

func errProfileTooLarge() error {
	return Errorf(PayloadTooLarge, "a profile is at most %d KiB", maxProfile>>10)
}

// wrongType makes the error for a field of the wrong JSON type: its name, after
// prefix, and its type. S is the type of the skills in body.
func wrongType[S any](err error, prefix string, body []byte) error {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return Errorf(InvalidRequest, "the profile cannot be read")
	}
	field := wrong.Field
	if field == "skills" || strings.HasPrefix(field, "skills.") {
		field = wrongSkill[S](body, field)
	}
	kind, _, _ := strings.Cut(wrong.Value, " ") // without the digits that follow "number"
	return FieldErrorf(InvalidRequest, prefix+field, "cannot be of the JSON type %s", kind)
}

// wrongSkill finds the skill with the wrong type, because encoding/json does not return
// its index.
func wrongSkill[S any](body []byte, field string) string {
	var v struct {
		Skills []json.RawMessage `json:"skills"`
	}
	if json.Unmarshal(body, &v) != nil {
		return field // skills is not a list
	}
	for i, text := range v.Skills {
		var skill S
		var wrong *json.UnmarshalTypeError
		if !errors.As(json.Unmarshal(text, &skill), &wrong) {
			continue
		}
		return strings.TrimSuffix(fmt.Sprintf("skills[%d].%s", i, wrong.Field), ".")
	}
	return field
}

// takeCard copies the fields that the profile leaves out from its card. It returns the
// names of the fields that equal the card's.
func (p *Profile) takeCard() (copied []string, err error) {
	var c agentCard
	if err := json.Unmarshal(p.Card, &c); err != nil {
		return nil, wrongType[cardSkill](err, "card.", p.Card)
	}
	for _, x := range []struct {
		name      string
		own, card *string
	}{{"display_name", &p.DisplayName, &c.Name}, {"description", &p.Description, &c.Description},
		{"version", &p.Version, &c.Version}} {
		if *x.own == *x.card {
			copied = append(copied, x.name)
		}
		setDefault(x.own, *x.card)
	}
	if p.Skills == nil {
		p.Skills = c.skills()
	} else if reflect.DeepEqual(p.Skills, c.skills()) {
		copied = append(copied, "skills")
	}
	return copied, nil
}

// The limits of a profile (PROTOCOL §5, Profile). Lengths are in characters.
const (
	maxProfile     = 64 << 10 // bytes
	maxDescription = 2000
	maxDetails     = 16_000
	maxTags        = 64
	maxTag         = 64
	maxSkills      = 100
	maxExamples    = 10
	maxExample     = 300
	maxShort       = 200 // of names, versions, ids, modes and types
	maxList        = 64  // entries of the other lists, and of maps
	maxURL         = 2048
	maxValue       = 1024
	maxAccept      = 100 // entries of accept_from
)

// Check refuses a profile over the limits (PROTOCOL §5, Profile): InvalidRequest,
// naming up to 20 faulty fields.
func (p *Profile) Check() error {
	f := profileFaults{}
	f.text("display_name", p.DisplayName, maxShort)
	f.text("description", p.Description, maxDescription)
	f.text("details", p.Details, maxDetails)
	f.text("version", p.Version, maxShort)
	f.tags("tags", p.Tags)
	f.list("examples", p.Examples, maxExamples, maxExample)
	f.list("languages", p.Languages, maxList, maxTag)
	f.list("accepts_message_types", p.MessageTypes, maxList, maxTag)
	if len(p.Skills) > maxSkills {
		f.fail("skills", "has more than 100 entries")
	}
	for i, s := range p.Skills {
		at := fmt.Sprintf("skills[%d].", i)
		f.text(at+"id", s.ID, maxShort)
		f.text(at+"name", s.Name, maxShort)
		f.text(at+"description", s.Description, maxDescription)
		f.tags(at+"tags", s.Tags)
		f.list(at+"examples", s.Examples, maxExamples, maxExample)
		f.list(at+"input_modes", s.InputModes, maxList, maxShort)
		f.list(at+"output_modes", s.OutputModes, maxList, maxShort)
		f.list(at+"message_types", s.MessageTypes, maxList, maxTag)
	}
	f.links(p.Links)
	if len(p.Metadata) > maxList {
		f.fail("metadata", "has more than 64 entries")
	}
	for k, v := range p.Metadata {
		f.text("metadata", k, maxTag)
		f.text("metadata", v, maxValue)
	}
	f.acceptFrom(p.AcceptFrom)
	if _, known := visibilityNumbers[p.Visibility]; !known {
		f.fail("visibility", "must be public, crew or unlisted")
	}
	if p.MaxAttempts < 0 || p.MaxAttempts > maxAttempts {
		f.fail("max_attempts", "must be a whole number from 0 to 1000")
	}
	return f.error()
}

const maxAttempts = 1000 // of Profile.MaxAttempts

// profileFaults collects the faults of a profile.
type profileFaults struct{ faults []FieldError }

func (f *profileFaults) fail(field, reason string) {
	if len(f.faults) < 20 {
		f.faults = append(f.faults, FieldError{field, reason})
	}
}

func (f *profileFaults) error() error {
	if len(f.faults) == 0 {
		return nil
	}
	return &Error{Code: InvalidRequest, Detail: f.faults[0].Field + " " + f.faults[0].Reason, Fields: f.faults}
}

func (f *profileFaults) text(field, s string, limit int) {
	if utf8.RuneCountInString(s) > limit {
		f.fail(field, "is longer than it may be")
	}
}

func (f *profileFaults) list(field string, all []string, limit, each int) {
	if len(all) > limit {
		f.fail(field, "has too many entries")
	}
	for _, s := range all {
		f.text(field, s, each)
	}
}

func (f *profileFaults) tags(field string, tags []string) {
	f.list(field, tags, maxTags, maxTag)
	for _, t := range tags {
		if t == "" || strings.ContainsFunc(t, unicode.IsControl) || slices.Contains(strings.Split(t, "/"), "") {
			f.fail(field, "must be words, with / between a parent and its child")
		}
	}
}

func (f *profileFaults) links(links map[string]string) {
	if len(links) > maxList {
		f.fail("links", "has more than 64 entries")
	}
	for name, link := range links {
		f.text("links", name, maxTag)
		u, err := url.Parse(link)
		if err != nil || len(link) > maxURL || u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "mailto" {
			f.fail("links", "must be http, https or mailto addresses")
		}
	}
}
