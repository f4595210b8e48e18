package mcp

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"relay/db/relay"
	"relay/http/client"
)

// fault is why a tool failed, as a model reads it.
type fault struct {
	Code       relay.Code      `json:"code"`
	Detail     string          `json:"detail"`
	DidYouMean []relay.Address `json:"did_you_mean,omitempty"`
	RetryAfter int             `json:"retry_after_seconds,omitempty"`
	// IdempotencyKey is the key of a message of which it is not known whether it was sent.
	IdempotencyKey string `json:"idempotency_key,omitempty"`
	WhatToDo       string `json:"what_to_do,omitempty"`
}

func (f *fault) Error() string { return fmt.Sprintf("%s: %s", f.Code, f.Detail) }

// Codes of the server itself, in addition to those of the API.
const (
	invalidArguments relay.Code = "invalid_arguments"
	unreachable      relay.Code = "unreachable"
	canceled         relay.Code = "canceled"
)

func invalid(format string, args ...any) error {
	return &fault{Code: invalidArguments, Detail: fmt.Sprintf(format, args...),
		WhatToDo: "Correct the arguments and call again."}
}

// failed makes the answer of a tool that has failed. It is a result and no error of the
// protocol, which a model may not get to see.
func failed(err error) (*mcp.CallToolResult, error) {
	if all := (*faults)(nil); errors.As(err, &all) {
		return result(all.answer, true)
	}
	return result(struct {
		Error *fault `json:"error"`
	}{faultOf(err)}, true)
}

// faultOf says what an error means for a model.
func faultOf(err error) *fault {
	var f *fault
	var r *client.Refusal
	switch {
	case errors.As(err, &f):
		return f
	case errors.As(err, &r):
		return refused(r)
	case errors.Is(err, context.Canceled):
		return &fault{Code: canceled, Detail: "the call was canceled",
			WhatToDo: "Look with check_inbox or read_conversation what was done before."}
	case errors.As(err, new(*client.WrongScheme)):
		return &fault{Code: unreachable, Detail: err.Error(),
			WhatToDo: "Tell your user: only they can correct the relay's address."}
	}
	return &fault{Code: unreachable, Detail: "the relay does not answer: " + relay.Visible(err.Error()),
		WhatToDo: "Call again in a minute; if that fails, tell your user that the relay is down."}
}

func refused(r *client.Refusal) *fault {
	f := &fault{Code: r.Code, Detail: r.Detail, DidYouMean: r.DidYouMean,
		RetryAfter: int(math.Ceil(r.RetryAfter.Seconds()))}
	if f.Code == "" { // a proxy may have answered
		f.Code, f.Detail = unreachable, r.Error()
	}
	switch {
	case r.Code == relay.RecipientNotFound && len(r.DidYouMean) > 0:
		f.WhatToDo = "Use an address of did_you_mean if it is the one that was meant, else find_agents."
	case r.Code == relay.RecipientNotFound:
		f.WhatToDo = "Look for the address with find_agents."
	case r.Code == relay.MessageNotFound, r.Code == relay.CursorNotFound:
		f.WhatToDo = "Copy the message_id exactly from check_inbox, send_message or read_conversation."
	case r.Code == relay.AlreadyAcknowledged, r.Code == relay.MessageExpired:
		f.WhatToDo = "There is nothing left to do for this message."
	case r.Code == relay.ConversationFull:
		f.WhatToDo = "Stop answering in this conversation; tell your user."
	case r.Code == relay.NotAccepted:
		f.WhatToDo = "This agent takes no messages from you. Do not try again."
	case r.Code == relay.TimestampOutOfRange:
		f.WhatToDo = "Tell your user to set this machine's clock."
	case r.Status == 401:
		f.WhatToDo = "Tell your user: the relay does not accept this agent's key. Calling again does not help."
	case client.Temporary(r):
		f.WhatToDo = "Wait, then call again with the same arguments."
	case r.Status == 403:
		f.WhatToDo = "The relay does not allow this. Calling again does not help."
	default:
		f.WhatToDo = "Correct what detail names, then call again."
	}
	return f
}
