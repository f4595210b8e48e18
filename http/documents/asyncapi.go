package documents

import (
	"maps"
	"strconv"
	"strings"

	"relay/db/relay"
)

// AsyncAPI returns the description of the WebSocket, an AsyncAPI 3.0 document in JSON, for
// a relay of the given version ("": unknown).
func AsyncAPI(version string) []byte {
	c := readComponents()
	c.Schemas["ErrorFrame"].(object)["properties"].(object)["code"] = object{"type": "string", "enum": frameRefusals}
	messages, inChannel := object{}, object{}
	for _, f := range frames {
		messages[f.kind] = object{"name": f.kind, "summary": f.about, "payload": reference("schemas", f.schema)}
		inChannel[f.kind] = object{"$ref": "#/components/messages/" + f.kind}
	}
	binding, codes := handshakeBinding(c), object{}
	for _, c := range closeCodes {
		codes[strconv.Itoa(c.code)] = c.about
	}
	variables := object{"host": object{"default": "127.0.0.1:8080", "description": "Where the relay listens."}}
	security := []object{{"$ref": "#/components/securitySchemes/key"}, {"$ref": "#/components/securitySchemes/ticket"}}
	return document(asyncAPI{
		AsyncAPI: "3.0.0",
		Info:     information("relay: the WebSocket", asyncAPIText, version),
		Servers: object{
			"plain": object{"host": "{host}", "protocol": "ws", "variables": variables, "security": security},
			"tls":   object{"host": "{host}", "protocol": "wss", "variables": variables, "security": security},
		},
		DefaultContentType: "application/json",
		Channels: object{"socket": object{
			"address":     socketPath,
			"description": "One socket of a Mecha. A refusal of the handshake is an ordinary HTTP answer: /openapi.json.",
			"parameters": object{"mechaId": object{"description": "The Mecha's own address; ^ may be written %5E.",
				"examples": []string{"alice^demo"}}},
			"messages":      inChannel,
			"bindings":      object{"ws": binding},
			"x-close-codes": codes,
		}},
		Operations: object{
			"push":        inSocket("send", "The frames that the relay sends unasked.", "message", "receipt", "sync"),
			"acknowledge": answered(inSocket("receive", "A client acknowledges.", "ack"), "ack_ok", "error"),
			"send":        answered(inSocket("receive", "A client sends a message.", "send"), "sent", "error"),
		},
		Components: object{"messages": messages, "schemas": usedIn(c.Schemas, messages, binding),
			"securitySchemes": object{"key": object{"type": "httpApiKey", "in": "header", "name": "X-Mecha-Key",
				"description": securityText},
				"ticket": object{"type": "httpApiKey", "in": "query", "name": "ticket", "description": ticketText}}},
	})
}

const socketPath = "/api/v1/ws/mecha/{mechaId}"

// asyncAPI has the members of the document in the order in which people read them.
type asyncAPI struct {
	AsyncAPI           string `json:"asyncapi"`
	Info               object `json:"info"`
	Servers            object `json:"servers"`
	DefaultContentType string `json:"defaultContentType"`
	Channels           object `json:"channels"`
	Operations         object `json:"operations"`
	Components         object `json:"components"`
}

const asyncAPIText = "The frames of the relay's WebSocket, one JSON object each. /docs/sockets shows how to use it, " +
	"/docs/protocol#4-websocket has the rules.\n\n" +
	"The relay sends text frames, and reads a binary frame like a text frame. " +
	"Ignore a type and fields that you do not know: a later version may add some."

// frames are the kinds of frames, of either side.
var frames = []struct{ kind, schema, about string }{
	{"message", "MessageFrame", "A message for this Mecha."},
	{"ack", "AckFrame", "The client acknowledges a message, as over HTTP."},
	{"ack_ok", "AckOkFrame", "An ack is on disk. Only with events=acks."},
	{"send", "SendFrame",
		"The client sends a message, as over HTTP. It may have as many bytes as a request's body, other frames 64 KiB."},
	{"sent", "SentFrame", "A message is on disk. Answers may come in another order than the frames."},
	{"error", "ErrorFrame", "A frame was not understood, or an ack or a message refused. The connection stays."},
	{"receipt", "ReceiptFrame",
		"A message that this Mecha sent was delivered, acknowledged or has expired. Only with events=receipts."},
	{"sync", "SyncFrame", "Catching up begins, or is done. Only with events=sync."},
}

// frameRefusals are the codes of error frames.
var frameRefusals = also(refusedWrite, relay.InvalidFrame, relay.InvalidJSON, relay.InvalidRequest, relay.InvalidTime,
	relay.KeyRevoked, relay.KeyExpired, relay.RecipientOnly, relay.MessageNotFound,
	relay.AlreadyAcknowledged, relay.TooManyAcks, relay.MessageExpired,
	relay.MissingHeader, relay.MalformedHeader, relay.TimestampOutOfRange, relay.SignatureRequired, relay.InvalidSignature,
	relay.NonceReused, relay.InvalidAddress, relay.InvalidIdempotencyKey, relay.SenderMismatch, relay.NotAParticipant,
	relay.RecipientNotFound, relay.ConversationNotFound, relay.IdempotencyKeyReused, relay.MailboxFull,
	relay.PayloadTooLarge, relay.NotAParty, relay.ConversationFull, relay.NotAccepted, relay.BroadcastNotAllowed,
	relay.TooManyRecipients, relay.RateLimited, relay.Internal, relay.Overloaded, relay.ShuttingDown)

// closeCodes are the codes of the relay's close frames (PROTOCOL §4, Keeping alive).
var closeCodes = []struct {
	code  int
	about string
}{
	{1000, "The client closed. If its close frame has a code, the answer has the same one."},
	{1001, "The relay stops, or no frame has come from the client for 60 seconds. Connect again."},
	{1002, "A frame was malformed, or a message was begun and did not come whole in time."},
	{1007, "A text, or the reason in a close frame, was no UTF-8."},
	{1008, "The key was revoked or has expired; the reason is key_revoked or key_expired."},
	{1009, "A message was longer than --max-body, or longer than 64 KiB and no send frame."},
	{1013, "The relay failed to read its database, or this node of a cluster does not hear the others (not_current). " +
		"Connect again after a pause, or to another node."},
}

// inSocket returns an operation of the relay on its socket.
func inSocket(action, about string, kinds ...string) object {
	return object{"action": action, "summary": about, "channel": object{"$ref": "#/channels/socket"},
		"messages": inMessages(kinds)}
}

// answered adds the frames that may answer those of an operation.
func answered(operation object, kinds ...string) object {
	operation["reply"] = object{"channel": object{"$ref": "#/channels/socket"}, "messages": inMessages(kinds)}
	return operation
}

func inMessages(kinds []string) (all []object) {
	for _, kind := range kinds {
		all = append(all, object{"$ref": "#/channels/socket/messages/" + kind})
	}
	return all
}

// handshakeBinding returns the query and the headers of the handshake, from the operation
// of OpenAPI.
func handshakeBinding(c *components) object {
	parts := map[string]object{"query": {}, "header": {}}
	required := []string{}
	var all []object
	for _, name := range operations["GET "+socketPath].parameters {
		all = append(all, c.Parameters[name].(object))
	}
	for _, p := range append(all, withoutTicket(c)...) {
		schema := maps.Clone(p["schema"].(object))
		if text, ok := p["description"]; ok && schema["$ref"] == nil {
			schema["description"] = text
		}
		parts[p["in"].(string)][p["name"].(string)] = schema
		if p["required"] == true {
			required = append(required, p["name"].(string))
		}
	}
	return object{
		"method": "GET", "bindingVersion": "0.1.0",
		"query":   object{"type": "object", "properties": parts["query"]},
		"headers": object{"type": "object", "required": required, "properties": parts["header"]},
	}
}

// usedIn returns the schemas that parts of a document refer to, and those that these do.
func usedIn(schemas object, parts ...any) object {
	used := object{}
	var visit func(any)
	visit = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, x := range v {
				visit(x)
			}
		case []object:
			for _, x := range v {
				visit(x)
			}
		case object:
			for _, x := range v {
				visit(x)
			}
			ref, _ := v["$ref"].(string)
			name, found := strings.CutPrefix(ref, "#/components/schemas/")
			if _, seen := used[name]; found && !seen {
				used[name] = schemas[name]
				visit(schemas[name])
			}
		}
	}
	visit(parts)
	return used
}
