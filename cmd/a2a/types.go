package a2a

import (
	"bytes"
	"encoding/json"
)

// The objects of the protocol, in the JSON of its version 1.0 (specification, §4 and §5.5).
// Fields that the gateway never sets are left out.

type task struct {
	ID        string         `json:"id"`
	ContextID string         `json:"contextId"`
	Status    status         `json:"status"`
	Artifacts []artifact     `json:"artifacts,omitzero"` // nil is left out, empty is not
	History   []agentMessage `json:"history,omitempty"`
}

type status struct {
	State     state         `json:"state"`
	Message   *agentMessage `json:"message,omitempty"`
	Timestamp string        `json:"timestamp,omitempty"`
}

// state is the state of a task (§4.1.3).
type state string

const (
	submitted     state = "TASK_STATE_SUBMITTED"
	working       state = "TASK_STATE_WORKING"
	completed     state = "TASK_STATE_COMPLETED"
	failed        state = "TASK_STATE_FAILED"
	canceled      state = "TASK_STATE_CANCELED"
	rejected      state = "TASK_STATE_REJECTED"
	inputRequired state = "TASK_STATE_INPUT_REQUIRED"
	authRequired  state = "TASK_STATE_AUTH_REQUIRED"
)

var states = []state{submitted, working, completed, failed, canceled, rejected, inputRequired, authRequired}

// ended reports whether the state is the last one of a task.
func (s state) ended() bool { return s == completed || s == failed || s == canceled || s == rejected }

// interrupted reports whether the task waits for its client.
func (s state) interrupted() bool { return s == inputRequired || s == authRequired }

// agentMessage is a message from the Mecha, or about it.
type agentMessage struct {
	MessageID string `json:"messageId"`
	ContextID string `json:"contextId"`
	TaskID    string `json:"taskId"`
	Role      string `json:"role"`
	Parts     []part `json:"parts"`
}

const (
	roleAgent = "ROLE_AGENT"
	roleUser  = "ROLE_USER"
)

// part is a part of a message as it is in JSON: clients and Mechas may know fields of it that the
// gateway does not.
type part = json.RawMessage

type artifact struct {
	ArtifactID string `json:"artifactId"`
	Parts      []part `json:"parts"`
}

// update is one event of a stream (§3.2.3). One field is set.
type update struct {
	Task     *task           `json:"task,omitempty"`
	Status   *statusUpdate   `json:"statusUpdate,omitempty"`
	Artifact *artifactUpdate `json:"artifactUpdate,omitempty"`
}

type statusUpdate struct {
	TaskID    string `json:"taskId"`
	ContextID string `json:"contextId"`
	Status    status `json:"status"`
}

type artifactUpdate struct {
	TaskID    string   `json:"taskId"`
	ContextID string   `json:"contextId"`
	Artifact  artifact `json:"artifact"`
	LastChunk bool     `json:"lastChunk"`
}

type taskList struct {
	Tasks         []*task `json:"tasks"`
	NextPageToken string  `json:"nextPageToken"`
	PageSize      int     `json:"pageSize"`
	TotalSize     int     `json:"totalSize"`
}

// marshal is json.Marshal, but leaves <, > and & as they are. The gateway's values can always be
// marshalled.
func marshal(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
