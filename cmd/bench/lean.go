package bench

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"relay/cmd/child"
)

// Lean is the command below bench that runs the least server which checks a request as a
// relay does: net/http, the key, the time, the nonce, the signature and the JSON. It
// keeps nothing, knows no limits, and always gives the same answer. So its cost is
// the least that HTTP and signatures cost any server in Go.
const Lean = "lean-server"

// startLean starts the lean server as a process of its own, for the keys of another server.
func (b *bench) startLean(ctx context.Context, like *server) (*server, error) {
	file, err := os.CreateTemp(b.dir, "keys-")
	if err != nil {
		return nil, err
	}
	defer file.Close()
	for _, m := range like.mechas {
		if _, err := fmt.Fprintf(file, "%x %s\n", sha256.Sum256([]byte(m.key)), m.address); err != nil {
			return nil, err
		}
	}
	s := &server{mechas: like.mechas, lean: true, stop: func() {}, program: b.Program,
		args: []string{"bench", Lean, file.Name()}, env: child.Environ()}
	b.servers = append(b.servers, s)
	return s, b.launch(ctx, s)
}

// lean is the handler of the lean server.
type lean struct {
	addresses map[[sha256.Size]byte]string // of the keys' hashes
	nonces    [64]struct {
		sync.Mutex
		used map[string]struct{}
	}
}

// ServeLean serves on a free port of 127.0.0.1 until ctx ends, and says where on out, as a
// line of JSON. keys has the hexadecimal SHA-256 of each key and the address of its Mecha.
func ServeLean(ctx context.Context, keys string, out io.Writer) error {
	text, err := os.ReadFile(keys)
	if err != nil {
		return err
	}
	h := &lean{addresses: map[[sha256.Size]byte]string{}}
	for i := range h.nonces {
		h.nonces[i].used = map[string]struct{}{}
	}
	for line := range strings.Lines(string(text)) {
		hash, address, _ := strings.Cut(strings.TrimSpace(line), " ")
		sum, err := hex.DecodeString(hash)
		if err != nil || len(sum) != sha256.Size {
			return fmt.Errorf("%s: a line without the SHA-256 of a key", keys)
		}
		h.addresses[[sha256.Size]byte(sum)] = address
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: h}
	defer context.AfterFunc(ctx, func() { server.Close() })()
	fmt.Fprintf(out, "{\"msg\":\"serving\",\"url\":\"http://%s\"}\n", listener.Addr())
	if err := server.Serve(listener); ctx.Err() == nil {
		return err
	}
	return nil
}

// ServeHTTP answers a send, and says 200 to every other path.
func (h *lean) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != sendPath {
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil {
		http.Error(w, "no body", http.StatusBadRequest)
		return
	}
	if !h.allows(r.Header, body) {
		http.Error(w, "not allowed", http.StatusUnauthorized)
		return
	}
	var message struct {
		To             string          `json:"to"`
		Payload        json.RawMessage `json:"payload"`
		ConversationID string          `json:"conversation_id"`
		CorrelationID  string          `json:"correlation_id"`
		InReplyTo      string          `json:"in_reply_to"`
	}
	if err := json.Unmarshal(body, &message); err != nil || message.To == "" || len(message.Payload) == 0 ||
		message.Payload[0] != '{' {
		http.Error(w, "no message", http.StatusBadRequest)
		return
	}
	const answer = `{"message_id":"msg_00000000000000000000000000",` +
		`"conversation_id":"conv_00000000000000000000000000","created_at":"2026-01-01T00:00:00.000Z"}`
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	io.WriteString(w, answer)
}

const leanWindow = 5 * time.Minute // in which the time of a request must lie

func (h *lean) allows(header http.Header, body []byte) bool {
	key, nonce, stamp := header.Get("X-Mecha-Key"), header.Get("X-Nonce"), header.Get("X-Request-Timestamp")
	sent, err := time.Parse(time.RFC3339, stamp)
	if _, known := h.addresses[sha256.Sum256([]byte(key))]; !known || err != nil ||
		time.Since(sent).Abs() > leanWindow || nonce == "" {
		return false
	}
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write(body)
	io.WriteString(mac, "|"+nonce+"|"+stamp)
	signature, err := base64.StdEncoding.DecodeString(header.Get("X-Signature"))
	if err != nil || !hmac.Equal(signature, mac.Sum(nil)) {
		return false
	}
	shard := &h.nonces[nonce[len(nonce)-1]%byte(len(h.nonces))]
	shard.Lock()
	defer shard.Unlock()
	_, used := shard.used[nonce]
	shard.used[nonce] = struct{}{}
	return !used
}
