package ws

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"relay/db/relay"

	"github.com/gobwas/ws"
)

const (
	feedWrite = 5 * time.Second  // in which a page must take what is written to it
	feedPing  = 20 * time.Second // between two pings
	feedDead  = time.Minute      // without a frame of the page, which answers pings; then the feed ends
	feedFrame = 4 << 10          // bytes that a page may send at once; what it says is not read
)

// Feed upgrades a request to a WebSocket on which a page of the same host is told something,
// and says nothing itself. It calls run with a function that sends a text, which only run's
// goroutine may use. ctx ends when the page is gone. When run returns, the socket closes:
// as going away, if run returns an error. Feed returns when the connection is closed. An error
// is returned before anything was written: UpgradeRequired, InvalidRequest, OriginNotAllowed.
func Feed(
	w http.ResponseWriter, r *http.Request, run func(ctx context.Context, send func(text []byte) error) error,
) error {
	if err := checkUpgrade(r); err != nil {
		return err
	}
	if origins := r.Header["Origin"]; len(origins) != 1 || !isOwn(origins[0], r) {
		return relay.Errorf(relay.OriginNotAllowed, "only a page of this host may open this socket")
	}
	conn, early, err := upgrade(w, r, feedWrite)
	if err != nil {
		return nil // the connection has been taken over from HTTP, and has failed: nobody can be answered
	}
	defer conn.Close()
	f := &feed{conn: conn}
	ctx, cancel := context.WithCancel(context.Background())
	var reader sync.WaitGroup
	reader.Go(func() {
		defer cancel()
		f.read(early)
	})
	stop := f.keepAlive(ctx)
	err = run(ctx, func(text []byte) error { return f.write(appendFrame(nil, ws.OpText, text)) })
	code := ws.StatusNormalClosure
	if err != nil {
		code = ws.StatusGoingAway
	}
	_ = f.write(closeFrame(code, "")) // the page may be gone
	stop()
	conn.Close()
	reader.Wait()
	return nil
}

// feed is one such socket. Its methods are safe for concurrent use.
type feed struct {
	conn net.Conn
	mu   sync.Mutex // one frame is written at a time
}

func (f *feed) write(frame []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.conn.SetWriteDeadline(time.Now().Add(feedWrite)); err != nil {
		return err
	}
	_, err := f.conn.Write(frame)
	return err
}

// keepAlive sends pings until stop is called.
func (f *feed) keepAlive(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var pings sync.WaitGroup
	pings.Go(func() {
		tick := time.NewTicker(feedPing)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if f.write(pingFrame) != nil {
					return
				}
			}
		}
	})
	return func() {
		cancel()
		pings.Wait()
	}
}

// read reads what the page sends until it is gone. It answers pings.
func (f *feed) read(early []byte) {
	f.countFrame()
	m := messageReader{r: bufio.NewReaderSize(io.MultiReader(bytes.NewReader(early), f.conn), readBuffer)}
	for {
		_, _, err := m.next(f)
		var end *closeError
		if errors.As(err, &end) {
			_ = f.write(closeFrame(end.code, end.reason)) // the page may be gone
		}
		if err != nil {
			return
		}
	}
}

// countFrame implements frameEvents.
func (f *feed) countFrame() { _ = f.conn.SetReadDeadline(time.Now().Add(feedDead)) }

// admit implements frameEvents.
func (f *feed) admit(length int64, before int, _ bool) error {
	if length+int64(before) > feedFrame {
		return tooBig(feedFrame)
	}
	return nil
}

// control implements frameEvents.
func (f *feed) control(op ws.OpCode, payload []byte) {
	if op == ws.OpPing {
		_ = f.write(appendFrame(nil, ws.OpPong, payload)) // if that fails, so does the next read
	}
}
