package ws_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"relay/db/relay"
	"relay/http/apitest"
)

// client is a WebSocket as a foreign implementation speaks it.
type client struct {
	*websocket.Conn
	below net.Conn
	t     testing.TB
	r     *testRelay
	acks  sync.Map // by message id: the latest ack that was sent, as text
	sends sync.Map // by ref: the latest frame that sent, as text
}

// Read reads a message, and holds what the relay says against its documents.
func (c *client) Read(ctx context.Context) (websocket.MessageType, []byte, error) {
	kind, text, err := c.Conn.Read(ctx)
	var end websocket.CloseError
	switch {
	case c.r.record == nil || c.r.echoes:
	case err == nil:
		c.r.holdFrame(text)
		var f frame
		if json.Unmarshal(text, &f) != nil {
			break
		}
		taken, ok := c.acks.Load(f.MessageID)
		of := "ack"
		if f.Type == "sent" {
			taken, ok = c.sends.Load(f.Ref)
			of = "send"
		}
		if ok && (f.Type == "ack_ok" || f.Type == "sent") {
			if fault := apitest.CheckTaken(of, []byte(taken.(string))); fault != "" {
				c.t.Errorf("the frame %.300s was taken: %s", taken, fault)
			}
		}
	case errors.As(err, &end):
		c.r.holdClose(int(end.Code))
	}
	return kind, text, err
}

// mustClose closes a connection of the key. The library wants the relay's close frame within 5 s. If
// this machine is too slow for that, another connection of the key is closed, up to the third.
func (r *testRelay) mustClose(c *client, k relay.IssuedKey) {
	r.t.Helper()
	for n := 1; ; n++ {
		began := time.Now()
		err := c.Close(websocket.StatusNormalClosure, "done")
		if err == nil {
			return
		}
		if n == 3 || time.Since(began) < 5*time.Second {
			r.t.Fatal(err)
		}
		eventually(r.t, "there is room again", func() (in bool) {
			var err error
			c, _, err = r.dial(k, "")
			return err == nil
		})
	}
}

func (r *testRelay) holdFrame(text []byte) {
	if fault := apitest.CheckFrame(text); fault != "" {
		r.t.Errorf("the frame %.300s is not as it is described: %s", text, fault)
	}
}

func (r *testRelay) holdClose(code int) {
	if !apitest.CheckClose(code) {
		r.t.Errorf("the close code %d is not described", code)
	}
}
