package relay

import (
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

// Visibility says who may find a Mecha (PROTOCOL §5).
type Visibility string

// Public: everybody. CrewOnly: the same crew; others do not learn that it
// exists. Unlisted: whoever knows the exact address.
const (
	Public   Visibility = "public"
	CrewOnly Visibility = "crew"
	Unlisted Visibility = "unlisted"
)

// visibilityNumbers are what the store has for a visibility. Unset means public.
var visibilityNumbers = map[Visibility]int64{"": 0, Public: 0, CrewOnly: 1, Unlisted: 2}

// Number is what the store has for a visibility.
func (v Visibility) Number() int64 { return visibilityNumbers[v] }

// Profile is what a Mecha says of itself. All fields are optional.
type Profile struct {
	DisplayName  string            `json:"display_name,omitempty"`
	Description  string            `json:"description,omitempty"`
	Details      string            `json:"details,omitempty"`
	Version      string            `json:"version,omitempty"`
	Tags         []string          `json:"tags,omitempty"` // "travel/flights": a child of "travel"
	Examples     []string          `json:"examples,omitempty"`
	Skills       []Skill           `json:"skills,omitzero"` // none, said so, is not the same as the card's
	Languages    []string          `json:"languages,omitempty"`
	MessageTypes []string          `json:"accepts_message_types,omitempty"`
	Links        map[string]string `json:"links,omitempty"`
	Metadata     map[string]string `json:"metadata,omitempty"`
	Visibility   Visibility        `json:"visibility,omitempty"`
	Card         json.RawMessage   `json:"card,omitempty"` // the A2A agent card that it came from
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

// agentCard is what an A2A agent card (specification 1.0) says that a profile has room for.
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

var profileFields = []string{"display_name", "description", "details", "version", "tags", "examples", "skills", "languages",
	"accepts_message_types", "links", "metadata", "visibility", "card"}

// replyFields are what a reply adds to a profile, beside the visibility that
// all have who say nothing else.
var replyFields = []string{"mecha_id", "name", "crew", "created_at", "updated_at", "online", "last_seen"}

// maxReply is more than what a reply adds takes, in bytes.
const maxReply = 1 << 10

// ReadProfile reads a profile from JSON and checks it: InvalidJSON,
// InvalidRequest naming the field, PayloadTooLarge. If it has a card, what the
// profile itself does not say is taken from there. Its size counts without what
// a reply adds, and what it says just as its card does: so a profile that is
// read can be put again. Unknown fields are ignored.
func ReadProfile(body []byte) (Profile, error) {
	var p Profile
	if len(body) > 2*maxProfile+maxReply { // no card can make it as long as that
		return p, errProfileTooLarge()
	}
	added, sizes := 0, map[string]int{} // of members, with their names
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
	size := len(body) - min(added, maxReply)
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

// ReadCard makes a profile of an A2A agent card: name, description, version
// and skills; the card is kept. Errors as for ReadProfile.
func ReadCard(body []byte) (Profile, error) {
	// By itself first: the card might close the brackets around it.
	err := ReadObject(body, nil, func(string, []byte) error { return nil })
	if ErrorCode(err) == InvalidJSON {
		return Profile{}, err
	}
	return ReadProfile(slices.Concat([]byte(`{"card":`), body, []byte(`}`)))
}

// wrongType names the field that cannot be read, of what stands at prefix. S is
// what the skills there are read as.
func wrongType[S any](err error, prefix string, body []byte) error {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return Errorf(InvalidRequest, "the profile cannot be read")
	}
	field := wrong.Field
	if field == "skills" || strings.HasPrefix(field, "skills.") {
		field = wrongSkill[S](body, field)
	}
	kind, _, _ := strings.Cut(wrong.Value, " ") // a number comes with all its digits
	return FieldErrorf(InvalidRequest, prefix+field, "cannot be of the JSON type %s", kind)
}

// wrongSkill says which one it is, which encoding/json does not tell.
func wrongSkill[S any](body []byte, field string) string {
	var v struct {
		Skills []json.RawMessage `json:"skills"`
	}
	if json.Unmarshal(body, &v) != nil {
		return field // they are no list
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

// takeCard takes what the profile does not say from its card, and names the
// members that say the same as the card does.
func (p *Profile) takeCard() (copied []string, err error) {
	var c agentCard
	if err := json.Unmarshal(p.Card, &c); err != nil {
		return nil, wrongType[cardSkill](err, "card.", p.Card)
	}
	for _, x := range []struct {
		name      string
		own, card *string
	}{{"display_name", &p.DisplayName, &c.Name}, {"description", &p.Description, &c.Description}, {"version", &p.Version, &c.Version}} {
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

// The bounds of a profile (PROTOCOL §5); lengths in characters.
const (
	maxProfile     = 64 << 10 // bytes
	maxDescription = 2000
	maxDetails     = 16_000
	maxTags        = 64
	maxTag         = 64
	maxSkills      = 100
	maxExamples    = 10
	maxExample     = 300
	maxShort       = 200 // names, versions, ids, modes, types
	maxList        = 64  // entries of the other lists and maps
	maxURL         = 2048
	maxValue       = 1024
)

// Check refuses a profile beyond its bounds: InvalidRequest, naming each fault.
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
	if _, known := visibilityNumbers[p.Visibility]; !known {
		f.fail("visibility", "must be public, crew or unlisted")
	}
	return f.error()
}

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

func (f *profileFaults) text(field, s string, most int) {
	if utf8.RuneCountInString(s) > most {
		f.fail(field, "is longer than it may be")
	}
}

func (f *profileFaults) list(field string, all []string, most, each int) {
	if len(all) > most {
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
