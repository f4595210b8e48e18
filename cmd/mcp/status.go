package mcp

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"relay/db/relay"
)

// trace is the life of a message.
type trace struct {
	Message record `json:"message"`
	Steps   []step `json:"steps"`
	Verdict struct {
		Code  string `json:"code"`
		Text  string `json:"text"`
		Since string `json:"since"`
	} `json:"verdict"`
}

type step struct {
	At        string `json:"at"`
	What      string `json:"what"`
	Status    string `json:"status,omitempty"`
	Detail    string `json:"detail,omitempty"`
	MessageID string `json:"message_id,omitempty"` // of the answer
	Until     string `json:"until,omitempty"`
}

const maxSteps = 10 // of a message that comes and goes, the latest

// messageStatus says what became of a message; without one, who the caller is.
func (d *server) messageStatus(ctx context.Context, r *mcp.CallToolRequest) (any, error) {
	var a struct {
		MessageID string `json:"message_id"`
	}
	if err := read(r, &a); err != nil {
		return nil, err
	}
	if a.MessageID == "" {
		return d.self(ctx)
	}
	path, err := messagePath(a.MessageID)
	if err != nil {
		return nil, err
	}
	var t trace
	if err := d.get(ctx, path+"/trace", &t); err != nil {
		return nil, err
	}
	return struct {
		Verdict   string `json:"verdict"`
		Code      string `json:"code"`
		Since     string `json:"since,omitempty"`
		Note      string `json:"note"`
		MessageID string `json:"message_id"`
		From      string `json:"from"`
		To        string `json:"to"`
		State     string `json:"state"`
		Steps     []step `json:"steps"`
	}{t.Verdict.Text, t.Verdict.Code, t.Verdict.Since, note, t.Message.MessageID, t.Message.From, t.Message.To,
		t.Message.State, t.Steps[max(0, len(t.Steps)-maxSteps):]}, nil
}

// self says who the caller is, and what waits for it.
func (d *server) self(ctx context.Context) (any, error) {
	mailbox, err := d.mailbox(ctx)
	if err != nil {
		return nil, err
	}
	var who struct {
		You       string `json:"mecha_id"`
		ExpiresAt string `json:"expires_at"`
	}
	if err := d.get(ctx, "/api/v1/whoami", &who); err != nil {
		return nil, err
	}
	var in inbox
	if err := d.get(ctx, mailbox+"/inbox", &in); err != nil {
		return nil, err
	}
	return struct {
		You     string `json:"you"`
		Pending int    `json:"pending"`
		Expires string `json:"key_expires_at,omitempty"`
	}{who.You, in.Pending, who.ExpiresAt}, nil
}

// found is the answer to a search.
type found struct {
	ID        string `json:"request_id"`
	Status    string `json:"status"`
	Total     int    `json:"total"`
	Corrected string `json:"corrected_query"`
	Results   []struct {
		MechaID     string `json:"mecha_id"`
		DisplayName string `json:"display_name"`
		Description string `json:"description"`
		Online      bool   `json:"online"`
		LastSeen    string `json:"last_seen"`
		Matched     struct {
			SkillID string   `json:"skill_id"`
			Fields  []string `json:"fields"`
			Terms   []string `json:"terms"`
		} `json:"matched"`
	} `json:"results"`
}

// agent is a Mecha in the answer of find_agents.
type agent struct {
	Address  string `json:"address"`
	About    string `json:"about,omitempty"`
	Why      string `json:"why,omitempty"`
	Online   bool   `json:"online"`
	LastSeen string `json:"last_seen,omitempty"`
}

const (
	maxAgents    = 20
	longestAbout = 240 // characters
)

// findAgents searches the profiles.
func (d *server) findAgents(ctx context.Context, r *mcp.CallToolRequest) (any, error) {
	var a struct {
		Query  string `json:"query"`
		Online *bool  `json:"online"`
		Limit  int    `json:"limit"`
	}
	if err := firstError(read(r, &a), whole("limit", &a.Limit, 5, maxAgents)); err != nil {
		return nil, err
	}
	if strings.TrimSpace(a.Query) == "" {
		return nil, invalid("query is missing: plain words for what the agent should be able to do")
	}
	question := map[string]any{"query": a.Query, "limit": a.Limit}
	if a.Online != nil {
		question["filter"] = map[string]any{"online": *a.Online}
	}
	var f found
	body, err := json.Marshal(question)
	if err != nil {
		return nil, err
	}
	search := &request{method: "POST", path: "/api/v1/search", body: body, header: http.Header{"Prefer": {"wait=10"}},
		hold: 10 * time.Second}
	if _, err := d.ask(ctx, search, &f); err != nil {
		return nil, err
	}
	if f.Status != "completed" {
		return nil, &fault{Code: relay.Overloaded, Detail: "the search has no result yet",
			WhatToDo: "Call again in some seconds."}
	}
	answer := struct {
		Note      string  `json:"note,omitempty"`
		Corrected string  `json:"searched_for,omitempty"`
		Agents    []agent `json:"agents"`
		SearchID  string  `json:"search_id,omitempty"`
		More      int     `json:"more,omitempty"`
	}{Corrected: f.Corrected, Agents: []agent{}, More: max(0, f.Total-len(f.Results))}
	for _, m := range f.Results {
		about := strings.TrimPrefix(strings.Join([]string{m.DisplayName, m.Description}, ": "), ": ")
		why := strings.Join(m.Matched.Terms, " ")
		if m.Matched.SkillID != "" {
			why = strings.TrimSpace(why + " (skill " + m.Matched.SkillID + ")")
		}
		answer.Note, answer.SearchID = note, f.ID
		answer.Agents = append(answer.Agents, agent{m.MechaID, shorten(strings.TrimSuffix(about, ": "), longestAbout),
			shorten(why, longestAbout), m.Online, m.LastSeen})
	}
	return answer, nil
}
