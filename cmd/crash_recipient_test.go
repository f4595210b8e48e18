package cmd_test

import (
	"context"
	"fmt"
	"net/http"

	"github.com/coder/websocket"
)

// deed is something that a recipient did to a message.
type deed struct {
	letter  *letter
	request request
	status  string // the acknowledgement; "" for deliver
	outcome outcome
}

type recipient struct {
	*crash
	agent
	mail  chan *letter
	deeds []*deed
	heard []string // message ids that were pushed; the first one is where the stream starts
}

// listen hears what is pushed, from where it was, until it has enough or the server is gone.
func (r *recipient) listen(enough func() bool) {
	ctx, cancel := context.WithTimeout(r.t.Context(), 2*patience)
	defer cancel()
	query := "?sync_limit=1000&since_message_id=" + r.heard[len(r.heard)-1]
	conn, _, err := websocket.Dial(ctx, r.server.url+"/api/v1/ws/mecha/"+r.Address+query,
		&websocket.DialOptions{HTTPHeader: r.request("GET", "", "").header})
	if err != nil {
		return // killed before
	}
	defer conn.CloseNow()
	conn.SetReadLimit(1 << 20)
	for !enough() {
		_, frame, err := conn.Read(ctx)
		if err != nil {
			return
		}
		m := parse[record](r.t, frame)
		r.heard = append(r.heard, m.MessageID)
	}
}

// work acknowledges and delivers two of three letters until the server is gone.
func (r *recipient) work() {
	for n := 0; ; n++ {
		var l *letter
		select {
		case l = <-r.mail:
		case <-r.dead:
			return
		}
		if n%3 == 2 {
			continue
		}
		d := &deed{letter: l, status: [...]string{"completed", "", "failed", "processing"}[n%4]}
		path, body := "/api/v1/messages/"+l.id+"/deliver", ""
		if d.status != "" {
			path = "/api/v1/messages/" + l.id + "/ack"
			body = fmt.Sprintf(`{"status":%q,"client_ts":"2026-01-01T00:00:00Z"}`, d.status)
		}
		d.request = r.request("POST", path, body)
		r.deeds = append(r.deeds, d)
		ans, err := d.request.to(r.server.url)
		if err != nil {
			return
		}
		if ans.status != http.StatusOK {
			r.t.Errorf("%s: status %d: %s", path, ans.status, ans.body)
			r.kill()
			return
		}
		d.outcome = accepted
	}
}

func (r *recipient) resolve() {
	for _, d := range r.deeds {
		if d.outcome != unknown {
			continue
		}
		ans, err := d.request.to(r.server.url)
		if err == nil && ans.code() == "nonce_reused" { // the relay accepted it before the kill; it may not have committed it
			ans, err = r.request("POST", d.request.path, d.request.body).to(r.server.url)
		}
		if err != nil || ans.status != http.StatusOK {
			r.t.Errorf("retry of %s: %v, %s", d.request.path, err, ans.body)
			return
		}
		d.outcome = accepted
	}
	r.replay(r.deeds[max(0, len(r.deeds)-10):])
}

func (r *recipient) replay(deeds []*deed) {
	for _, d := range deeds {
		ans, err := d.request.to(r.server.url)
		if err != nil || ans.status != http.StatusUnauthorized || ans.code() != "nonce_reused" {
			r.t.Errorf("replay of %s: %v, status %d: %s", d.request.path, err, ans.status, ans.body)
			return
		}
	}
}
