package cmd_test

import (
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// front is the network before a relay: an address that stays while the relay
// behind it is killed and started again, and that can lose answers.
type front struct {
	url string

	mu     sync.Mutex
	target string
	lose   int // answers that get lost from now on
	lost   int
}

func newFront(t testing.TB, s *server) *front {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &front{url: "http://" + l.Addr().String()}
	f.leadTo(s)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			go f.pass(in)
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	return f
}

func (f *front) leadTo(s *server) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.target = strings.TrimPrefix(s.url, "http://")
}

// loseAnswers cuts the next n connections when the relay has answered.
func (f *front) loseAnswers(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lose = n
}

func (f *front) answersLost() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lost
}

func (f *front) pass(in net.Conn) {
	defer in.Close()
	f.mu.Lock()
	target := f.target
	f.mu.Unlock()
	out, err := net.Dial("tcp", target)
	if err != nil {
		return // the relay is away
	}
	defer out.Close()
	f.mu.Lock()
	lose := f.lose > 0 // only of a relay that is there: so the answers of the next one get lost, whatever the time
	if lose {
		f.lose--
	}
	f.mu.Unlock()
	go func() {
		io.Copy(out, in) // ends with either of them
		out.Close()
	}()
	if lose {
		n, _ := out.Read(make([]byte, 1))
		f.mu.Lock()
		f.lost += n
		f.lose += 1 - n // the relay has not answered: the next one it is
		f.mu.Unlock()
		return
	}
	io.Copy(in, out)
}

// pair is what the client commands need: a relay, alice and bob, and the
// environment of each.
type pair struct {
	*server
	alice, bob       agent
	asAlice, asBob   []string
	aliceEnv, bobEnv func(url string) []string
}

func newPair(t testing.TB, args ...string) *pair {
	t.Helper()
	db := tempDB(t)
	keys := issue(t, db, "alice^talk", "bob^talk")
	p := &pair{server: startServer(t, db, append(args, "--require-message-signature")...), alice: keys[0], bob: keys[1]}
	state := "XDG_STATE_HOME=" + t.TempDir()
	p.aliceEnv = func(url string) []string { return []string{"RELAY_URL=" + url, "RELAY_KEY=" + p.alice.Key, state} }
	p.bobEnv = func(url string) []string { return []string{"RELAY_URL=" + url, "RELAY_KEY=" + p.bob.Key, state} }
	p.asAlice, p.asBob = p.aliceEnv(p.url), p.bobEnv(p.url)
	return p
}

// does runs a command as one of them.
func does(t testing.TB, env []string, args ...string) result {
	t.Helper()
	return run(t, args, env, "")
}

// record reads what the sender or the recipient sees of a message.
func (s *server) record(a agent, id string) fullRecord {
	s.t.Helper()
	return parse[fullRecord](s.t, s.ask(a, "GET", "/api/v1/messages/"+strings.TrimSpace(id), "").want(s.t, http.StatusOK))
}

type fullRecord struct {
	record
	MessageType   string `json:"message_type"`
	Priority      string
	CorrelationID string `json:"correlation_id"`
	ExpiresAt     string `json:"expires_at"`
	AckBy         string `json:"ack_by"`
	Ack           *struct{ Status, Detail string }
}

func (r fullRecord) status() string {
	if r.Ack == nil {
		return ""
	}
	return r.Ack.Status
}
