package client_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"relay/http/client"
)

// Of a server that takes a connection and says nothing, the error names the server.
func TestASilentServerIsNamed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // the system accepts for it
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	url := "http://" + l.Addr().String()
	_, err = client.AskReady(ctx, url, nil)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), url+" does not answer") {
		t.Error(err)
	}
}
