package db

import "time"

// Visibility says who may find a Mecha (PROTOCOL §5).
type Visibility string

// Public: everybody. CrewOnly: the same crew; others do not learn that it
// exists. Unlisted: whoever knows the exact address.
const (
	Public   Visibility = "public"
	CrewOnly Visibility = "crew"
	Unlisted Visibility = "unlisted"
)

// Profile is what a Mecha says of itself. All fields are optional.
type Profile struct {
	DisplayName  string            `json:"display_name,omitempty"`
	Description  string            `json:"description,omitempty"`
	Details      string            `json:"details,omitempty"`
	Version      string            `json:"version,omitempty"`
	Tags         []string          `json:"tags,omitempty"` // "travel/flights": a child of "travel"
	Examples     []string          `json:"examples,omitempty"`
	Skills       []Skill           `json:"skills,omitempty"`
	Languages    []string          `json:"languages,omitempty"`
	MessageTypes []string          `json:"accepts_message_types,omitempty"`
	Links        map[string]string `json:"links,omitempty"`
	Metadata     map[string]string `json:"metadata,omitempty"`
	Visibility   Visibility        `json:"visibility,omitempty"`
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

// Entry is a registered Mecha with its profile, as the directory has it.
type Entry struct {
	Mecha
	Profile
	Revision  int64 // grows with every change of any entry
	UpdatedAt time.Time
	Removed   bool // only ID, Address and Revision are set
}
