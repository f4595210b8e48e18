package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"relay/db/relay"
)

// WhoAmI is what the relay knows of the key.
type WhoAmI struct {
	MechaID           string `json:"mecha_id"`
	KeyID             string `json:"key_id"`
	Label             string
	ExpiresAt         string `json:"expires_at"` // RFC 3339; "": never
	SignatureRequired bool   `json:"signature_required"`
	ServerTime        string `json:"server_time"`
}

// WhoAmI asks the relay whose key this is.
func (c *Client) WhoAmI(ctx context.Context) (*WhoAmI, error) {
	who := &WhoAmI{}
	return who, c.Call(ctx, "GET", "/api/v1/whoami", nil, who)
}

// Agent is a Mecha that a search has found.
type Agent struct {
	Address     string `json:"mecha_id"`
	DisplayName string `json:"display_name"`
	Description string
	Online      bool
	LastSeen    string `json:"last_seen"` // RFC 3339; "": never
	Score       float64
	Why         Why `json:"matched"`
}

// Why says what a search has found in an agent's profile.
type Why struct {
	SkillID string   `json:"skill_id"` // the skill that matches best; may be empty
	Fields  []string // where the words stand, as in description
	Terms   []string // the words
}

// FindOptions narrow a search. The zero value finds the best ten.
type FindOptions struct {
	Limit  int // default: 10; at most 100
	Filter FindFilter
	Sort   string // relevance (default), recent or name
}

// FindFilter allows only some agents. Of a list, one must match.
type FindFilter struct {
	Tags      []string `json:"tags,omitempty"` // a tag matches its children, too
	Crew      []string `json:"crew,omitempty"`
	Skills    []string `json:"skills,omitempty"`
	Languages []string `json:"languages,omitempty"`
	Online    *bool    `json:"online,omitempty"`
}

// Found is the answer to a search.
type Found struct {
	ID        string  `json:"request_id"` // for SendOptions.SearchID
	Total     int     // how many there are, beyond the limit, too
	Corrected string  `json:"corrected_query"` // the query as it was read; "": as it was written
	Agents    []Agent `json:"results"`

	JSON json.RawMessage `json:"-"` // the whole answer
}

const searchWait = "wait=10" // seconds; a search takes a quarter of one

// Find searches for agents by what they can do, in plain words, the best first (PROTOCOL §5).
// query may be empty if there is a filter.
func (c *Client) Find(ctx context.Context, query string, options ...FindOptions) (*Found, error) {
	var o FindOptions
	if len(options) > 0 {
		o = options[0]
	}
	set(&o.Limit, 10)
	set(&o.Sort, "relevance")
	body, err := json.Marshal(struct {
		Query  string     `json:"query"`
		Filter FindFilter `json:"filter"`
		Sort   string     `json:"sort"`
		Limit  int        `json:"limit"`
	}{query, o.Filter, o.Sort, o.Limit})
	if err != nil {
		return nil, err
	}
	resp, err := c.Do(ctx, "POST", "/api/v1/search", body, http.Header{"Prefer": {searchWait}})
	if err == nil {
		err = resp.Err()
	}
	if err != nil {
		return nil, err
	}
	found := &Found{JSON: resp.Body}
	return found, json.Unmarshal(resp.Body, found)
}

// Publish replaces the Mecha's own profile, by which others find it (PROTOCOL §5, Profile).
// profile is a []byte or json.RawMessage with a JSON object, or what json.Marshal makes one of.
// While the relay is away, Publish tries for a minute: agents begin with it.
func (c *Client) Publish(ctx context.Context, profile any) error {
	raw, err := payloadBytes(profile)
	if err != nil {
		return err
	}
	return Retry(ctx, defaultTimeout, func(ctx context.Context) error {
		own, err := c.Address(ctx)
		if err != nil {
			return err
		}
		return c.Call(ctx, "PUT", mechaPath(own, "/profile"), raw, &json.RawMessage{})
	})
}

func mechaPath(own relay.Address, rest string) string {
	return "/api/v1/mecha/" + url.PathEscape(string(own)) + rest
}

// Pending says how many messages wait for a Mecha.
type Pending struct {
	Pending    int
	ByPriority map[string]int `json:"by_priority"`

	JSON json.RawMessage `json:"-"` // the whole answer
}

// Pending counts the messages that wait for this Mecha: not acknowledged, not expired.
func (c *Client) Pending(ctx context.Context) (*Pending, error) {
	own, err := c.Address(ctx)
	if err != nil {
		return nil, err
	}
	p := &Pending{}
	if err := c.Call(ctx, "GET", mechaPath(own, "/inbox"), nil, &p.JSON); err != nil {
		return nil, err
	}
	return p, json.Unmarshal(p.JSON, p)
}

// Inbox returns the messages that wait for this Mecha, with their payloads, the oldest first
// and at most limit of them. It changes nothing. An error is the last value.
func (c *Client) Inbox(ctx context.Context, limit int) iter.Seq2[*Message, error] {
	return func(yield func(*Message, error) bool) {
		own, err := c.Address(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		q := url.Values{"state": {"pending"}, "direction": {"in"}, "include": {"payload"}}
		c.pages(ctx, mechaPath(own, "/messages"), q, limit, yield)
	}
}

// History returns the messages of a conversation that this Mecha has sent or received, the
// oldest first and at most limit of them; those received with their payloads. An error is the
// last value.
func (c *Client) History(ctx context.Context, conversation string, limit int) iter.Seq2[*Message, error] {
	return func(yield func(*Message, error) bool) {
		c.pages(ctx, "/api/v1/conversations/"+url.PathEscape(conversation)+"/messages",
			url.Values{"include": {"payload"}}, limit, yield)
	}
}

const pageSize = 200

// pages yields the records of one page after the other.
func (c *Client) pages(ctx context.Context, path string, q url.Values, limit int, yield func(*Message, error) bool) {
	for given := 0; given < limit; {
		q.Set("limit", strconv.Itoa(min(limit-given, pageSize)))
		var p struct {
			Messages []json.RawMessage
			More     bool   `json:"has_more"`
			Next     string `json:"next_cursor"`
		}
		if err := c.Call(ctx, "GET", path+"?"+q.Encode(), nil, &p); err != nil {
			yield(nil, err)
			return
		}
		for _, record := range p.Messages {
			given++
			if m, err := c.messageOf(record); !yield(m, err) || err != nil {
				return
			}
		}
		if !p.More {
			return
		}
		q.Set("since_message_id", p.Next)
	}
}
