package console

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"relay/db/look/survey"
	"relay/db/relay"
)

// Operator acts for the person at the console; *operator.Operator is one. Each act is noted in the
// audit log together with its effect. It must be safe for concurrent use. There is no way to
// acknowledge a message for its recipient.
type Operator interface {
	// Address is the Mecha from which the messages come.
	Address() relay.Address
	// Send sends a message; body is the body of a POST. With the same once it sends nothing a
	// second time, and gives the message of the first time.
	Send(body []byte, once string) (relay.MessageID, error)
	// Expire expires a pending message now.
	Expire(id relay.MessageID) error
	Revoke(id relay.KeyID) error
}

// maxForm bounds the body of a form: a payload of 1 MiB in which every byte is escaped.
const maxForm = 4 << 20

// actPage is what pages/act.html shows: what is about to happen, and the button that does it.
type actPage struct {
	Title, Will string
	Facts       []fact
	Payload     string // as it was typed
	To          string // where the form is sent
	Fields      []fact // of the form
	Button      string
	Back        string // the path of who does not want it
}

type fact struct{ Name, Value string }

// sendPage is what pages/send.html shows: the form of a message.
type sendPage struct {
	From              relay.Address
	To, Type, Payload string
	Fault             string // why it was not taken; "" the first time
}

// withOperator lets only requests through that can be carried out, and bounds their bodies.
func (c *Console) withOperator(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if c.config.Operator == nil {
			c.refuse(w, r,
				relay.Errorf(relay.NotFound, "this console only shows: relay serve --console-operator ADDRESS lets it act"))
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		if r.Method == http.MethodPost {
			if err := r.ParseForm(); err != nil {
				c.refuse(w, r, errForm(err))
				return
			}
		}
		h(w, r)
	}
}

func errForm(err error) error {
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return relay.Errorf(relay.PayloadTooLarge, "the form is too large")
	}
	return relay.Errorf(relay.InvalidRequest, "the form could not be read")
}

// showSend makes the page at GET /send.
func (c *Console) showSend(r *http.Request) (any, error) {
	return &sendPage{From: c.config.Operator.Address(), To: r.URL.Query().Get("to"), Payload: "{}"}, nil
}

// send answers POST /send: at first with the message as it will be sent, and when the person
// has confirmed that, by the field once, with the message that was sent.
func (c *Console) send(w http.ResponseWriter, r *http.Request) {
	to, kind := strings.TrimSpace(r.PostFormValue("to")), r.PostFormValue("type")
	payload := strings.ReplaceAll(r.PostFormValue("payload"), "\r\n", "\n") // a form sends each line with CRLF
	body, err := appendBody(relay.Address(to), kind, "", "", []byte(payload))
	if err == nil {
		check := relay.SendMessage{At: c.config.Now()}
		err = check.Read(body, c.config.Operator.Address())
	}
	if err == nil {
		_, err = c.config.Store.Mecha(relay.Address(to), c.config.Now())
	}
	if once := r.PostFormValue("once"); err == nil && once != "" {
		var id relay.MessageID
		if id, err = c.config.Operator.Send(body, once); err == nil {
			http.Redirect(w, r, "/message/"+string(id), http.StatusSeeOther)
			return
		}
	}
	if err != nil { // what was typed is still there
		f := c.frame(r, "send")
		f.Data = &sendPage{From: c.config.Operator.Address(), To: to, Type: kind, Payload: payload, Fault: detailOf(err)}
		c.write(w, http.StatusBadRequest, f)
		return
	}
	f := c.frame(r, "act")
	f.Data = &actPage{Title: "Send this message?", Will: "It is sent as " + string(c.config.Operator.Address()) +
		", as any message is.",
		Facts: []fact{{"To", to}, {"Type", kind}}, Payload: payload, To: "/send", Button: "Send",
		Fields: []fact{{"to", to}, {"type", kind}, {"payload", payload}, {"once", random()}}, Back: "/"}
	c.write(w, http.StatusOK, f)
}

// appendBody makes the body of a POST. payload stays as it is, byte for byte.
func appendBody(to relay.Address, kind, priority, cites string, payload []byte) ([]byte, error) {
	payload = bytes.TrimSpace(payload)
	if !json.Valid(payload) || payload[0] != '{' {
		return nil, relay.FieldErrorf(relay.InvalidRequest, "payload", "must be a JSON object")
	}
	head, err := json.Marshal(struct {
		To            relay.Address `json:"to"`
		Type          string        `json:"message_type,omitempty"`
		Priority      string        `json:"priority,omitempty"`
		CorrelationID string        `json:"correlation_id,omitempty"`
	}{to, kind, priority, cites})
	if err != nil {
		return nil, err
	}
	body := append(head[:len(head)-1], `,"payload":`...)
	return append(append(body, payload...), '}'), nil
}

// showAgain makes the page at GET /message/{id}/again.
func (c *Console) showAgain(r *http.Request) (any, error) {
	m, err := c.config.Store.Message(relay.MessageID(r.PathValue("id")))
	if err != nil {
		return nil, err
	}
	path := "/message/" + string(m.ID)
	return &actPage{Title: "Send it again?", Will: "A new message with the same payload goes to " + string(m.To) +
		". It comes from " + string(c.config.Operator.Address()) +
		", not from " + string(m.From) + ", and so does the answer go there. " +
		"It has the id of this message as its correlation id.",
		Facts: []fact{{"Message", string(m.ID)}, {"To", string(m.To)}, {"Type", m.Type},
			{"Payload", size(int64(m.PayloadBytes))}},
		To: path + "/again", Button: "Send again", Fields: []fact{{"once", random()}}, Back: path}, nil
}

// again answers POST /message/{id}/again.
func (c *Console) again(w http.ResponseWriter, r *http.Request) {
	id := relay.MessageID(r.PathValue("id"))
	m, err := c.config.Store.Message(id)
	var body []byte
	if err == nil {
		body, err = c.config.Store.Payload(id)
	}
	once := r.PostFormValue("once")
	if err == nil && once == "" {
		err = errUnconfirmed
	}
	if err == nil {
		body, err = appendBody(m.To, m.Type, m.Priority, string(m.ID), body)
	}
	if err == nil {
		id, err = c.config.Operator.Send(body, once)
	}
	c.done(w, r, err, "/message/"+string(id))
}

// confirmed is in the forms of the pages that say what will happen, besides those of messages,
// which have once.
var confirmed = []fact{{"confirmed", "yes"}}

func isConfirmed(r *http.Request) error {
	if r.PostFormValue(confirmed[0].Name) != confirmed[0].Value {
		return errUnconfirmed
	}
	return nil
}

var errUnconfirmed = relay.Errorf(relay.InvalidRequest, "the form was not confirmed: open its page again")

// detailOf is what a refusal says to people.
func detailOf(err error) string {
	var e *relay.Error
	if errors.As(err, &e) && e.Cause == nil {
		return e.Detail
	}
	return "it could not be checked"
}

// showExpire makes the page at GET /message/{id}/expire.
func (c *Console) showExpire(r *http.Request) (any, error) {
	m, err := c.config.Store.Message(relay.MessageID(r.PathValue("id")))
	if err != nil {
		return nil, err
	}
	if !m.State.Pending() {
		return nil, relay.Errorf(relay.AlreadyAcknowledged, "this message is %s: it cannot expire any more", m.State)
	}
	path := "/message/" + string(m.ID)
	return &actPage{Title: "Let it expire now?", Will: "Nobody gets it any more, " + string(m.From) + " is told that " +
		"it expired, and that cannot be undone. If a worker is busy with it, its acknowledgement will be refused.",
		Facts: []fact{{"Message", string(m.ID)}, {"From", string(m.From)}, {"To", string(m.To)}, {"State", m.State.String()}},
		To:    path + "/expire", Button: "Expire", Fields: confirmed, Back: path}, nil
}

// expire answers POST /message/{id}/expire.
func (c *Console) expire(w http.ResponseWriter, r *http.Request) {
	id, err := relay.MessageID(r.PathValue("id")), isConfirmed(r)
	if err == nil {
		err = c.config.Operator.Expire(id)
	}
	c.done(w, r, err, "/message/"+string(id))
}

// showRevoke makes the page at GET /key/{id}/revoke.
func (c *Console) showRevoke(r *http.Request) (any, error) {
	id := relay.KeyID(r.PathValue("id"))
	k, err := c.key(id)
	if err != nil {
		return nil, err
	}
	if k.State == survey.KeyRevoked {
		return nil, relay.Errorf(relay.KeyRevoked, "this key was revoked before")
	}
	return &actPage{Title: "Revoke this key?", Will: "From then on every request with it is refused, " +
		"and its sockets are closed. That cannot be undone; relay key create issues another key.",
		Facts: []fact{{"Key", string(k.ID)}, {"Mecha", string(k.Mecha)}, {"Label", k.Label}, {"Last used", k.Used}},
		To:    "/key/" + url.PathEscape(string(id)) + "/revoke", Button: "Revoke", Fields: confirmed, Back: "/keys"}, nil
}

// revoke answers POST /key/{id}/revoke.
func (c *Console) revoke(w http.ResponseWriter, r *http.Request) {
	id, err := relay.KeyID(r.PathValue("id")), isConfirmed(r)
	if err == nil {
		err = c.config.Operator.Revoke(id)
	}
	c.done(w, r, err, "/keys?q="+url.QueryEscape(string(id)))
}

// done leads to the page that shows the effect of an act, or says why it had none.
func (c *Console) done(w http.ResponseWriter, r *http.Request, err error, path string) {
	if err != nil {
		c.refuse(w, r, err)
		return
	}
	http.Redirect(w, r, path, http.StatusSeeOther)
}
