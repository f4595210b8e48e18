package console

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"relay/db/look/survey"
	"relay/db/relay"
)

const shownKeys = 100

// keysPage is what pages/keys.html shows.
type keysPage struct {
	Verdict
	Text   string // that was searched for
	States []choice
	Keys   []key
	pager
}

// choice is a link that narrows or widens a list.
type choice struct {
	Name, Link string
	N          int
	Chosen     bool
}

// key is a row of a list of keys.
type key struct {
	survey.Key
	Used    string
	Created string
	Ends    string // when it ends, or has ended
	Tone    string
}

// stateNames are the names of the states of keys for people.
var stateNames = [...]string{"ends soon", "never used", "live", "expired", "revoked"}

// keyOf makes the row of a key.
func keyOf(k survey.Key, now time.Time) key {
	row := key{Key: k, Used: "never", Created: moment(k.CreatedAt, now), Ends: "never",
		Tone: [...]string{"warn", "quiet", "good", "quiet", "quiet"}[k.State]}
	row.Label = cut(k.Label, wordLength)
	if !k.LastUsed.IsZero() {
		row.Used = ago(k.LastUsed, now)
	}
	switch {
	case k.State == survey.KeyRevoked:
		row.Ends = "revoked " + moment(k.RevokedAt, now)
	case k.State == survey.KeyExpired && k.ExpiresAt.IsZero(), k.State == survey.KeyExpired && k.ExpiresAt.After(now):
		row.Ends = "expired"
	case k.State == survey.KeyExpired:
		row.Ends = "expired " + moment(k.ExpiresAt, now)
	case !k.ExpiresAt.IsZero():
		row.Ends = "in " + age(k.ExpiresAt.Sub(now))
	}
	return row
}

// StateName is the state for people.
func (k key) StateName() string { return stateNames[k.State] }

// showKeys makes the page at /keys.
func (c *Console) showKeys(r *http.Request) (any, error) {
	now := c.config.Now()
	p := &keysPage{Text: strings.TrimSpace(r.URL.Query().Get("q"))}
	n, from := c.pageOf(r, shownKeys)
	q := survey.KeyQuery{Text: p.Text, Offset: from, Limit: shownKeys}
	chosen, ok := survey.ParseKeyState(r.URL.Query().Get("state"))
	if ok {
		q.State = &chosen
	}
	found, err := c.config.Store.Keys(q)
	if err != nil {
		return nil, err
	}
	all := 0
	for state, n := range found.Counts {
		if all += n; n > 0 {
			s := survey.KeyState(state)
			p.States = append(p.States, choice{stateNames[s], linkWith(r, "state", s.String(), "page", ""), n,
				ok && s == chosen})
		}
	}
	p.States = append([]choice{{"all", linkWith(r, "state", "", "page", ""), all, !ok}}, p.States...)
	for _, k := range found.List {
		p.Keys = append(p.Keys, keyOf(k, now))
	}
	p.pager = pagesOf(r, n, found.More)
	p.Verdict = judgeKeys(found.Counts)
	return p, nil
}

// key finds a key by its id. Error: UnknownKey.
func (c *Console) key(id relay.KeyID) (key, error) {
	const limit = 100 // keys whose label has the text of an id
	found, err := c.config.Store.Keys(survey.KeyQuery{Text: string(id), Limit: limit})
	if err != nil {
		return key{}, err
	}
	for _, k := range found.List {
		if k.ID == id {
			return keyOf(k, c.config.Now()), nil
		}
	}
	return key{}, relay.Errorf(relay.UnknownKey, "there is no key %s", relay.Quote(string(id)))
}

// judgeKeys says in one sentence what is to be done about the keys.
func judgeKeys(n [5]int) (v Verdict) {
	live := n[survey.KeyEnding] + n[survey.KeyUnused] + n[survey.KeyLive]
	ending := n[survey.KeyEnding]
	switch {
	case ending == 1:
		v.Text, v.Level = fmt.Sprintf("1 key expires within %s.", age(survey.KeySoon)), 1
	case ending > 1:
		v.Text, v.Level = fmt.Sprintf("%s expire within %s.", plural(ending, "key"), age(survey.KeySoon)), 1
	default:
		v.Text = fmt.Sprintf("No key expires within %s.", age(survey.KeySoon))
	}
	if unused := n[survey.KeyUnused]; unused > 0 {
		whose := map[bool]string{true: "was its worker", false: "were their workers"}[unused == 1]
		v.Also = append(v.Also, fmt.Sprintf("%s%s never used: %s never started?", plural(unused, "key"), was(unused), whose))
	}
	v.Also = append(v.Also, fmt.Sprintf("%s%s live.", plural(live, "key"), is(live)))
	return v
}
