package a2a

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"relay/db/relay"
	"relay/http/client"
)

// card is an agent card (§4.4.1). Fields that the gateway never sets are left out.
type card struct {
	Name            string                `json:"name"`
	Description     string                `json:"description"`
	Interfaces      []cardInterface       `json:"supportedInterfaces"`
	Version         string                `json:"version"`
	Documentation   string                `json:"documentationUrl,omitempty"`
	Capabilities    capabilities          `json:"capabilities"`
	SecuritySchemes map[string]scheme     `json:"securitySchemes,omitempty"`
	Security        []securityRequirement `json:"securityRequirements,omitempty"`
	InputModes      []string              `json:"defaultInputModes"`
	OutputModes     []string              `json:"defaultOutputModes"`
	Skills          []cardSkill           `json:"skills"`
}

type cardInterface struct {
	URL     string `json:"url"`
	Binding string `json:"protocolBinding"`
	Version string `json:"protocolVersion"`
}

type capabilities struct {
	Streaming bool `json:"streaming"`
	Push      bool `json:"pushNotifications"`
	Extended  bool `json:"extendedAgentCard"`
}

type scheme struct {
	HTTP struct {
		Scheme string `json:"scheme"`
	} `json:"httpAuthSecurityScheme"`
}

type securityRequirement struct {
	Schemes map[string]scopes `json:"schemes"`
}

type scopes struct {
	List []string `json:"list"`
}

type cardSkill struct {
	ID          string   `json:"id"`
	Name        string   `json:"name"`
	Description string   `json:"description"`
	Tags        []string `json:"tags"`
	Examples    []string `json:"examples,omitempty"`
	InputModes  []string `json:"inputModes,omitempty"`
	OutputModes []string `json:"outputModes,omitempty"`
}

// profile is what the relay tells of a Mecha (PROTOCOL §5).
type profile struct {
	MechaID string `json:"mecha_id"`
	relay.Profile
}

const (
	binding        = "JSONRPC"
	version        = "1.0"
	cardPath       = "/.well-known/agent-card.json"
	cardAge        = "max-age=60"
	unknownVersion = "1"
)

// makeCard describes a Mecha as its profile does. Fields that the protocol requires and the profile does not
// have is filled in with what is true of every Mecha.
func (d *Gateway) makeCard(p *profile) *card {
	modes := []string{"text/plain", "application/json"}
	c := &card{
		Name:          cmp.Or(p.DisplayName, p.MechaID),
		Description:   cmp.Or(p.Description, "The Mecha "+p.MechaID+", behind a message relay."),
		Interfaces:    []cardInterface{{d.URL + pathOf(relay.Address(p.MechaID)), binding, version}},
		Version:       cmp.Or(p.Version, unknownVersion),
		Documentation: p.Links["documentation"],
		Capabilities:  capabilities{Streaming: true}, InputModes: modes, OutputModes: modes,
	}
	for _, s := range p.Skills {
		name := cmp.Or(s.Name, s.ID, "skill")
		tags := s.Tags
		if len(tags) == 0 {
			tags = []string{cmp.Or(s.ID, name)}
		}
		c.Skills = append(c.Skills, cardSkill{cmp.Or(s.ID, name), name, cmp.Or(s.Description, name), tags, s.Examples,
			mediaTypes(s.InputModes), mediaTypes(s.OutputModes)})
	}
	if len(c.Skills) == 0 { // at least one is required (§5.7)
		tags := p.Tags
		if len(tags) == 0 {
			tags = []string{"messages"}
		}
		c.Skills = []cardSkill{{ID: "messages", Name: c.Name, Description: c.Description, Tags: tags, Examples: p.Examples}}
	}
	if d.Token != "" {
		bearer := scheme{}
		bearer.HTTP.Scheme = "Bearer"
		c.SecuritySchemes = map[string]scheme{"bearer": bearer}
		c.Security = []securityRequirement{{map[string]scopes{"bearer": {List: []string{}}}}}
	}
	return c
}

// mediaTypes leaves out what is none: profiles may have other words.
func mediaTypes(all []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return !strings.Contains(s, "/") })
}

// pathOf is where a Mecha is reached.
func pathOf(a relay.Address) string { return "/a2a/" + url.PathEscape(string(a)) }

// offered remembers for a while which Mechas the directory has shown. The zero value knows
// none.
type offered struct {
	mu  sync.Mutex
	all map[relay.Address]time.Time // until when
}

const (
	offeredTime = 30 * time.Second
	maxOffered  = 10_000
)

func (o *offered) has(a relay.Address) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return time.Now().Before(o.all[a])
}

func (o *offered) add(a relay.Address) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.all == nil || len(o.all) >= maxOffered {
		o.all = map[relay.Address]time.Time{}
	}
	o.all[a] = time.Now().Add(offeredTime)
}

// named reports whether the operator has named the Mecha.
func (d *Gateway) named(a relay.Address) bool { return slices.Contains(d.Offer, a) }

// reaches reports whether clients reach a Mecha.
func (d *Gateway) reaches(ctx context.Context, a relay.Address) (bool, error) {
	if len(d.Offer) > 0 {
		return d.named(a), nil
	}
	if d.offered.has(a) {
		return true, nil
	}
	p, err := d.profile(ctx, a)
	return p != nil, err
}

// profile reads the profile of a Mecha; nil if clients do not reach it.
func (d *Gateway) profile(ctx context.Context, a relay.Address) (*profile, error) {
	if a == d.Own || len(d.Offer) > 0 && !d.named(a) {
		return nil, nil
	}
	p := &profile{}
	err := d.get(ctx, "/api/v1/mecha/"+url.PathEscape(string(a))+"/profile", p)
	switch {
	case client.Refused(err, relay.MechaNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	case len(d.Offer) == 0 && p.Visibility == relay.Unlisted: // found by its address, and not shown by the directory
		return nil, nil
	}
	d.offered.add(a)
	return p, nil
}

// answerCard answers a request for a card.
func (d *Gateway) answerCard(w http.ResponseWriter, r *http.Request, a relay.Address) {
	p, err := d.profile(r.Context(), a)
	switch {
	case err != nil:
		refuse(w, http.StatusBadGateway, faultOf(err).Message)
		return
	case p == nil:
		refuse(w, http.StatusNotFound, "there is no such Mecha at this gateway")
		return
	}
	body := marshal(d.makeCard(p))
	sum := sha256.Sum256(body)
	etag := `"` + hex.EncodeToString(sum[:8]) + `"`
	h := w.Header()
	h.Set("Cache-Control", cardAge)
	h.Set("ETag", etag)
	if r.Header.Get("If-None-Match") == etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	send(w, http.StatusOK, body)
}
