package client_test

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"net/textproto"
	"testing"
	"time"

	"relay/db/relay"
	"relay/http/client"
)

func TestASignerSignsAsTheProtocolSays(t *testing.T) {
	for _, secret := range []string{"", "ms_secret"} {
		s, err := client.NewSigner("mk_key", secret)
		if err != nil {
			t.Fatal(err)
		}
		signing, nonces := secret, map[string]bool{}
		if secret == "" {
			signing = "mk_key"
		}
		for i, body := range [][]byte{nil, []byte(`{}`), []byte("für|Bob\n"), bytes.Repeat([]byte("x"), 1<<20)} {
			h := textproto.MIMEHeader(s.Header(body))
			if i%2 == 1 { // as lines
				lines := append(s.Append([]byte("Host: here\r\n"), body), "\r\n"...)
				if h, err = textproto.NewReader(bufio.NewReader(bytes.NewReader(lines))).ReadMIMEHeader(); err != nil || h.Get("Host") != "here" {
					t.Fatalf("%v in %q", err, lines)
				}
				h.Del("Host")
			}
			nonce, timestamp := h.Get("X-Nonce"), h.Get("X-Request-Timestamp")
			want := base64.StdEncoding.EncodeToString(relay.Sign(signing, body, nonce, timestamp))
			if len(h) != 4 || h.Get("X-Mecha-Key") != "mk_key" || h.Get("X-Signature") != want {
				t.Errorf("body %.10q: %v, want the signature %s", body, h, want)
			}
			if at, err := relay.ParseTime(timestamp); err != nil || time.Since(at).Abs() > patience {
				t.Errorf("timestamp %q, %v", timestamp, err)
			}
			if len(nonce) < 26 || nonces[nonce] {
				t.Errorf("the nonce %q", nonce)
			}
			nonces[nonce] = true
		}
	}
}

func TestTwoSignersOfAKeyShareNoNonce(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		s, err := client.NewSigner("mk_key", "")
		if err != nil {
			t.Fatal(err)
		}
		for range 100 {
			nonce := s.Header(nil).Get("X-Nonce")
			if seen[nonce] {
				t.Fatalf("%s came twice", nonce)
			}
			seen[nonce] = true
		}
	}
}

func TestAppendDoesNotAllocate(t *testing.T) {
	s, err := client.NewSigner("mk_key", "")
	if err != nil {
		t.Fatal(err)
	}
	line, body := make([]byte, 0, 1024), []byte(`{"to":"bob^demo","payload":{}}`)
	if n := testing.AllocsPerRun(100, func() { s.Append(line, body) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkAppend(b *testing.B) {
	s, err := client.NewSigner("mk_key", "")
	if err != nil {
		b.Fatal(err)
	}
	line, body := make([]byte, 0, 1024), bytes.Repeat([]byte("x"), 512)
	b.ReportAllocs()
	for b.Loop() {
		s.Append(line, body)
	}
}

// A frame that sends is signed over the bytes of its message.
func TestAFrameIsSigned(t *testing.T) {
	s, err := client.NewSigner("mk_key", "ms_secret")
	if err != nil {
		t.Fatal(err)
	}
	message := []byte(`{ "to":"bob^demo","payload":{"n":1.0}}`)
	for _, ref := range []string{"7", "\"\u2028"} {
		var f relay.Frame
		if err := f.Read(s.AppendFrame(nil, ref, message)); err != nil {
			t.Fatal(err)
		}
		signature, ok := relay.DecodeSignature(f.Send.Signature)
		if !ok || !bytes.Equal(signature, relay.Sign("ms_secret", message, f.Send.Nonce, f.Send.Timestamp)) || f.Ref != ref || !bytes.Equal(f.Send.Message, message) {
			t.Errorf("got %+v", f)
		}
	}
}
