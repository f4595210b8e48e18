package client

import (
	"context"
	"net"
	"net/http"
	"time"
)

// WithClock makes a listener look at another clock.
func WithClock(o ListenOptions, now func() time.Time) ListenOptions {
	o.now = now
	return o
}

// SetDial sets how all clients connect without TLS.
func SetDial(dial func(ctx context.Context, network, addr string) (net.Conn, error)) {
	dialTCP = dial
	http.DefaultTransport.(*http.Transport).DialContext = dial // which New copies
}
