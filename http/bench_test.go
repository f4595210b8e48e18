package http_test

import (
	"bufio"
	"bytes"
	"io"
	"net"
	nethttp "net/http"
	"os"
	"strings"
	"testing"
)

// sink takes an answer without a network.
type sink struct {
	header nethttp.Header
	status int
}

func (p *sink) Header() nethttp.Header         { return p.header }
func (p *sink) WriteHeader(status int)         { p.status = status }
func (p *sink) Write(body []byte) (int, error) { return len(body), nil }

// The cost of our part of a request, from its headers to its answer, without the
// network and net/http's reading: whoami is little but authentication; what is refused
// has been decoded, too; a send adds the store, with a commit of its own.
func BenchmarkRequest(b *testing.B) {
	r := mustServe(b)
	alice := r.mustIssue("alice^demo")
	large := `{"to":"alice^demo","payload":{"text":"` + strings.Repeat("x", 64<<10) + `"}}`
	full := `{"to":"alice^demo","from":"alice^demo","version":"1.0","message_type":"request","priority":"high","correlation_id":"c-1",` +
		`"conversation_id":"trip-to-lisbon","ttl_seconds":600,"payload":{"text":"` + strings.Repeat("x", 500) + `"}}`
	for _, c := range []struct {
		name, method, path, body string
		status                   int
	}{
		{"whoami", "GET", whoami, "", 200},
		{"send-512", "POST", messages, `{"to":"alice^demo","payload":{"text":"` + strings.Repeat("x", 501) + `"}}`, 201},
		{"send-512-all-fields", "POST", messages, full, 201},
		{"send-64K", "POST", messages, large, 201},
		{"refused", "POST", messages, `{"to":"alice^demo","payload":[]}`, 400},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(c.body)))
			b.ReportAllocs()
			const ahead = 500 // requests that are signed at a time, while the clock of the benchmark stands
			requests := make([]*nethttp.Request, 0, ahead)
			w := &sink{header: nethttp.Header{}}
			for i := range b.N {
				if i%ahead == 0 {
					b.StopTimer()
					requests = requests[:0]
					for range min(ahead, b.N-i) {
						q, err := alice.prepare(c.method, c.path, c.body).request(r.url)
						if err != nil {
							b.Fatal(err)
						}
						requests = append(requests, q)
					}
					b.StartTimer()
				}
				clear(w.header)
				r.api.ServeHTTP(w, requests[i%ahead])
				if w.status != c.status {
					b.Fatal(w.status)
				}
			}
		})
	}
}

// BenchmarkRead reads over a real connection, with the ring of nonces and without.
func BenchmarkRead(b *testing.B) {
	for _, nonces := range []string{"ring", "memory"} {
		r := mustServe(b, func(s *settings) {
			if nonces == "memory" { // no ring can be made where there is a folder
				if err := os.MkdirAll(s.db.Path+"-nonces/x", 0o700); err != nil {
					b.Fatal(err)
				}
			}
		})
		alice := r.mustIssue("alice^demo")
		for name, path := range map[string]string{"whoami": whoami, "message": messagePath(alice.mustSend(alice).MessageID)} {
			b.Run(name+"/"+nonces, func(b *testing.B) {
				conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
				if err != nil {
					b.Fatal(err)
				}
				defer conn.Close()
				answers := bufio.NewReader(conn)
				var request bytes.Buffer
				b.ReportAllocs()
				for b.Loop() {
					b.StopTimer()
					q, err := alice.prepare("GET", path, "").request(r.url)
					if err != nil {
						b.Fatal(err)
					}
					request.Reset()
					q.Write(&request)
					b.StartTimer()
					conn.Write(request.Bytes())
					a, err := nethttp.ReadResponse(answers, q)
					if err != nil || a.StatusCode != 200 {
						b.Fatal(a, err)
					}
					io.Copy(io.Discard, a.Body)
				}
			})
		}
	}
}
