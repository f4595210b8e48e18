package http

import (
	"bytes"
	"net/http"
)

// A request that has both Content-Length and Transfer-Encoding ends its connection
// (RFC 9112 §6.1): a proxy in front may have taken another length for its body, and
// then believes that the bytes behind it belong to somebody else's request. net/http
// reads such a request by its Transfer-Encoding and removes its Content-Length before
// any handler sees it, so the connection has to look for that itself.

// framing notes whether a Content-Length may be in the headers of the latest request. net/http
// reads ahead, so it is also true if one stood in the request before, or in a body: a connection
// that ends too early costs little.
type framing struct {
	matched int   // bytes of contentLength that the latest bytes end with
	reads   int64 // how often the connection was read
	found   int64 // the number of the latest read with a Content-Length
	before  int64 // reads up to this one have nothing of the latest request
}

var contentLength = []byte("\ncontent-length") // in small letters

// note looks at the bytes that one read of the connection has brought. size is the
// length of the buffer that it was read into.
func (f *framing) note(b []byte, size int) {
	// While a handler runs, net/http reads a single byte, to learn whether the client has
	// gone. Bytes of the next request that it has read ahead came with the read before.
	if size > 1 {
		f.reads++
	}
	for len(b) > 0 {
		if f.matched == 0 { // there are few lines, and the body of a request may have none
			i := bytes.IndexByte(b, '\n')
			if i < 0 {
				return
			}
			b = b[i+1:]
			if len(b) == 0 || b[0]|0x20 == contentLength[1] {
				f.matched = 1
			}
			continue
		}
		switch c := b[0]; {
		case c == contentLength[f.matched], 'A' <= c && c <= 'Z' && c|0x20 == contentLength[f.matched]:
			b = b[1:]
			if f.matched++; f.matched == len(contentLength) {
				f.found, f.matched = f.reads, 0
			}
		default:
			f.matched = 0 // this byte may begin the next line
		}
	}
}

// end is called when a request has ended. Bytes of the next one may have been read,
// but only by the latest read.
func (f *framing) end() { f.before = f.reads - 1 }

func (f *framing) mayHaveLength() bool { return f.found > f.before }

// Read implements net.Conn.
func (c *guarded) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	c.framing.note(b[:n], len(b))
	return n, err
}

// endsConnection reports whether the answer to a request must be the last on its
// connection. Over TLS, and where no guardedListener has accepted the connection, its bytes
// cannot be looked at: there, every request with Transfer-Encoding ends it. So does
// every request of HTTP/1.0, of which net/http ignores the Transfer-Encoding.
func endsConnection(r *http.Request) bool {
	if len(r.TransferEncoding) == 0 {
		return r.ProtoMajor == 1 && r.ProtoMinor == 0
	}
	c := connection(r.Context())
	return c == nil || r.TLS != nil || c.framing.mayHaveLength()
}
