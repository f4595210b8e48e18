package conformance

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"

	"relay/http/client"
)

// An ear is a socket of a session, whose frames are read as they come.
type ear struct {
	socket *client.Socket
	frames chan heard
	lost   error // why the socket ended; valid once frames is closed
	stop   context.CancelFunc

	hearing, silence time.Duration // as in ServerConfig
}

// A heard is a frame from the server.
type heard struct {
	Type           string
	From, To       string
	MessageID      string `json:"message_id"`
	ConversationID string `json:"conversation_id"`
	MessageType    string `json:"message_type"`
	PayloadBase64  string `json:"payload_base64"`
	CreatedAt      string `json:"created_at"`
	InReplyTo      string `json:"in_reply_to"`
	Ref            string
	Code           string
	State          string
	Status         string

	fields map[string]any
}

// listen opens the socket of a Mecha.
func (s *session) listen(as *peer, query string) (*ear, error) {
	ctx, stop := context.WithCancel(s.ctx)
	socket, err := as.client.Dial(ctx, as.Address, query)
	if err != nil {
		stop()
		return nil, fmt.Errorf("the WebSocket of %s: %w", as.Address, err)
	}
	e := &ear{socket: socket, frames: make(chan heard, 1000), stop: stop, hearing: s.hearing, silence: s.silence}
	go e.read(ctx)
	return e, nil
}

// listenNow opens the socket of the second Mecha behind its latest message, so that only
// what is sent from now on comes.
func (s *session) listenNow() (*ear, error) {
	m, err := s.send(s.first, s.second, `{"latest":true}`, "")
	if err != nil {
		return nil, err
	}
	return s.listen(s.second, "since_message_id="+m.MessageID)
}

func (e *ear) read(ctx context.Context) {
	defer close(e.frames)
	for {
		text, err := e.socket.Next()
		var h heard
		if err == nil {
			if err = json.Unmarshal(text, &h); err == nil {
				err = json.Unmarshal(text, &h.fields)
			}
		}
		if err != nil {
			e.lost = err
			return
		}
		select {
		case e.frames <- h:
		case <-ctx.Done():
			e.lost = ctx.Err()
			return
		}
	}
}

// close ends the socket, and waits for its reader.
func (e *ear) close() {
	e.stop()
	e.socket.Close()
	for range e.frames {
	}
}

// next waits for a frame that is wanted, and passes over the others.
func (e *ear) next(what string, wanted func(*heard) bool) (*heard, error) {
	late := time.NewTimer(e.hearing)
	defer late.Stop()
	for {
		select {
		case h, open := <-e.frames:
			if !open {
				return nil, fmt.Errorf("the socket ended before %s came: %w", what, e.lost)
			}
			if wanted(&h) {
				return &h, nil
			}
		case <-late.C:
			return nil, fmt.Errorf("%s did not come over the socket within %v", what, e.hearing)
		}
	}
}

// message waits for one message.
func (e *ear) message(id string) (*heard, error) {
	return e.next("message "+id, func(h *heard) bool { return h.MessageID == id && h.Type == "message" })
}

// rest waits until so many of these messages have come, and returns all that comes until nothing
// has come for a while.
func (e *ear) rest(want int, of []sent) (all []heard) {
	awaited := map[string]bool{}
	for _, m := range of {
		awaited[m.MessageID] = true
	}
	late := time.Now().Add(e.hearing)
	for {
		limit := e.silence
		if want > 0 {
			limit = max(time.Until(late), limit)
		}
		quiet := time.NewTimer(limit)
		select {
		case h, open := <-e.frames:
			quiet.Stop()
			if !open {
				return all
			}
			all = append(all, h)
			if h.Type == "message" && awaited[h.MessageID] {
				delete(awaited, h.MessageID)
				want--
			}
		case <-quiet.C:
			return all
		}
	}
}

// heardOf returns how many of these messages came, each counted once.
func heardOf(all []heard, of []sent) int {
	var b bytes.Buffer
	for _, h := range all {
		if h.Type == "message" {
			fmt.Fprintln(&b, h.MessageID)
		}
	}
	return among(b.Bytes(), of)
}

func (e *ear) ack(id, status string) error {
	return e.socket.Send(map[string]string{"type": "ack", "message_id": id, "status": status, "client_ts": now()})
}

// payload returns the bytes of the payload of a frame.
func (h *heard) payload() ([]byte, error) {
	b, err := base64.StdEncoding.DecodeString(h.PayloadBase64)
	if err != nil {
		return nil, fmt.Errorf("payload_base64 is not standard Base64: %w", err)
	}
	return b, nil
}

// noSocket asks for a socket with other headers, and wants a refusal.
func (s *session) noSocket(what string, as *peer, change change) error {
	path := "/api/v1/ws" + as.path()[len("/api/v1"):]
	return s.refused("a handshake "+what, as, "GET", path, "", both(change,
		with("Connection", "Upgrade"), with("Upgrade", "websocket"), with("Sec-WebSocket-Version", "13"),
		with("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")))
}
