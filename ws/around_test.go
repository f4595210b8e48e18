package ws

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
)

// What package ws does itself instead of having gobwas/ws do it (hub.go) is measured here against
// the library, and what it relies on is checked. A test that fails after an upgrade names the part.

// unheard is told of frames and does nothing.
type unheard struct{}

func (unheard) countFrame()                  {}
func (unheard) admit(int64, int, bool) error { return nil }
func (unheard) control(ws.OpCode, []byte)    {}

// clientFrames makes frames of a client: texts of this length, each masked.
func clientFrames(n, length int) []byte {
	var all bytes.Buffer
	for i := range n {
		f := ws.NewTextFrame(bytes.Repeat([]byte("ä"), length/2))
		if err := ws.WriteFrame(&all, ws.MaskFrameWith(f, [4]byte{1, 2, 3, byte(i)})); err != nil {
			panic(err)
		}
	}
	return all.Bytes()
}

// BenchmarkFrames reads frames of the length of an acknowledgement, and longer ones: with our
// reader, with the reader of gobwas that is used again for each message, and with the function
// that its documentation shows.
func BenchmarkFrames(b *testing.B) {
	for _, length := range []int{120, 4 << 10} {
		const n = 256
		frames := clientFrames(n, length)
		source := bytes.NewReader(frames)
		in := bufio.NewReaderSize(source, readBuffer)
		for _, way := range []struct {
			name string
			read func(io.Reader) error
		}{{"ours", readOurs(in)}, {"gobwas-reader", readGobwas(in)}, {"gobwas-data", readData}} {
			b.Run(fmt.Sprintf("%d/%s", length, way.name), func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(length))
				for i := range b.N {
					if i%n == 0 {
						source.Reset(frames)
						in.Reset(source)
					}
					if err := way.read(in); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func readOurs(in *bufio.Reader) func(io.Reader) error {
	m := &messageReader{r: in}
	return func(io.Reader) error { _, _, err := m.next(unheard{}); return err }
}

func readGobwas(in io.Reader) func(io.Reader) error {
	r := &wsutil.Reader{Source: in, State: ws.StateServerSide, CheckUTF8: true}
	return func(io.Reader) error {
		h, err := r.NextFrame()
		if err != nil {
			return err
		}
		for b, n := make([]byte, h.Length), 0; ; {
			k, err := r.Read(b[n:])
			if n += k; err == io.EOF && n == len(b) {
				return nil
			} else if err != nil {
				return err
			}
		}
	}
}

func readData(in io.Reader) error {
	_, _, err := wsutil.ReadClientData(struct {
		io.Reader
		io.Writer
	}{in, io.Discard})
	return err
}

// drops returns its bytes one by one, and between them says that nothing is there, as a socket
// does that the poller waits for.
type drops struct {
	bytes []byte
	dry   bool
}

func (d *drops) Read(p []byte) (int, error) {
	if d.dry = !d.dry; d.dry || len(d.bytes) == 0 {
		return 0, errNothing
	}
	n := copy(p[:1], d.bytes)
	d.bytes = d.bytes[n:]
	return n, nil
}

// Our reader continues in the middle of a frame. It exists because gobwas' does not.
func TestWhyFramesAreReadHere(t *testing.T) {
	goesOn := func(read func(io.Reader) error, from io.Reader) (err error) {
		for range 1000 {
			if err = read(from); err != errNothing {
				break
			}
		}
		return err
	}
	frame := clientFrames(1, 200)
	if err := goesOn(readOurs(bufio.NewReader(&drops{bytes: frame})), nil); err != nil {
		t.Errorf("our reader: %v", err)
	}
	if goesOn(readGobwas(&drops{bytes: frame}), nil) == nil || goesOn(readData, &drops{bytes: frame}) == nil {
		t.Error("the reader of gobwas/ws goes on in the middle of a frame now: see whether frame.go can use it")
	}
}

// Our reader peeks at a header and has gobwas read it. So gobwas must take these bytes and no
// others, and must know the faults that readHeader leaves to it.
func TestWhatOurReaderLeavesToGobwas(t *testing.T) {
	for length, size := range map[int64]int{0: 6, 125: 6, 126: 8, 0xffff: 8, 0x10000: 14} {
		var b bytes.Buffer
		h := ws.Header{Fin: true, OpCode: ws.OpText, Masked: true, Mask: [4]byte{1, 2, 3, 4}, Length: length}
		if err := ws.WriteHeader(&b, h); err != nil {
			t.Fatal(err)
		}
		b.WriteString("the payload")
		got, err := ws.ReadHeaderBuffer(&b, make([]byte, ws.MaxHeaderSize))
		if err != nil || got != h || b.String() != "the payload" || headerSize(0x80|byte(min(length, 126))) != min(size, 8) {
			t.Errorf("a header of %d bytes is read as %+v, and leaves %q: see messageReader.readHeader", size, got, b.String())
		}
	}
	right := ws.Header{Fin: true, OpCode: ws.OpText, Masked: true}
	for fault, change := range map[string]func(h *ws.Header, s *ws.State){
		"a reserved bit":             func(h *ws.Header, _ *ws.State) { h.Rsv = 4 },
		"no mask":                    func(h *ws.Header, _ *ws.State) { h.Masked = false },
		"an unknown opcode":          func(h *ws.Header, _ *ws.State) { h.OpCode = 3 },
		"an unknown control opcode":  func(h *ws.Header, _ *ws.State) { h.OpCode = 11 },
		"a fragmented ping":          func(h *ws.Header, _ *ws.State) { h.OpCode, h.Fin = ws.OpPing, false },
		"a long ping":                func(h *ws.Header, _ *ws.State) { h.OpCode, h.Length = ws.OpPing, 126 },
		"a continuation of nothing":  func(h *ws.Header, _ *ws.State) { h.OpCode = ws.OpContinuation },
		"a message between fragment": func(_ *ws.Header, s *ws.State) { *s = s.Set(ws.StateFragmented) },
	} {
		h, s := right, ws.StateServerSide
		if change(&h, &s); ws.CheckHeader(h, s) == nil {
			t.Errorf("gobwas/ws lets %s pass: messageReader.readHeader must refuse it", fault)
		}
	}
	if err := ws.CheckHeader(right, ws.StateServerSide); err != nil {
		t.Errorf("a right header: %v", err)
	}
}

// checkUpgrade exists because gobwas/ws upgrades these requests, and takes the connection over
// before it looks at any, so that no error can be answered as the API's are.
func TestWhyHandshakesAreCheckedHere(t *testing.T) {
	const key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
	taken := make(chan bool, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if refused := checkUpgrade(r); refused == nil {
			t.Errorf("checkUpgrade lets %v pass", r.Header)
		}
		r.Header["Connection"], r.Header["Upgrade"] = []string{"Upgrade"}, []string{"websocket"} // as upgrade does
		conn, _, _, err := ws.HTTPUpgrader{}.Upgrade(r, w)
		if conn != nil {
			conn.Close()
		}
		taken <- conn != nil && (err == nil || r.Method != http.MethodGet)
	}))
	defer server.Close()
	for fault, request := range map[string][]string{
		"a key that is no Base64": {"GET", strings.Replace(key, "Q==", "!!!", 1)},
		"two keys":                {"GET", key, key},
		"a body":                  {"GET", key, "Content-Length: 3"},
		"two versions":            {"GET", key, "Sec-WebSocket-Version: 8"},
		"another method":          {"PUT", key},
	} {
		conn := mustDial(t, server.Listener.Addr().String())
		fmt.Fprintf(conn, "%s / HTTP/1.1\r\nHost: relay\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
			"Sec-WebSocket-Version: 13\r\n%s\r\n\r\n", request[0], strings.Join(request[1:], "\r\n"))
		if !<-taken {
			t.Errorf("gobwas/ws does not take over a request with %s any more: see whether checkUpgrade can leave it out", fault)
		}
		conn.Close()
	}
}

func mustDial(t testing.TB, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}
