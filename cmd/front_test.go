package cmd_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
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
	return newPairWith(t, startServer, args)
}

// newPairWithProcess has a relay that can be killed.
func newPairWithProcess(t testing.TB, args ...string) *pair {
	t.Helper()
	return newPairWith(t, startProcess, args)
}

func newPairWith(t testing.TB, start func(testing.TB, string, ...string) *server, args []string) *pair {
	t.Helper()
	db := tempDB(t)
	keys := issue(t, db, "alice^talk", "bob^talk")
	p := &pair{server: start(t, db, append(args, "--require-message-signature")...), alice: keys[0], bob: keys[1]}
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

// lifeOf is what the API tells of a message's life.
type lifeOf struct {
	Steps []struct {
		At, What, Status, Detail, Worker, Until string
	}
	Verdict struct{ Code, Text string }
}

func (s *server) trace(a agent, id string) lifeOf {
	s.t.Helper()
	return parse[lifeOf](s.t, s.ask(a, "GET", "/api/v1/messages/"+id+"/trace", "").want(s.t, http.StatusOK))
}

// steps are the kinds of a trace's steps, with the words of acknowledgements.
func (tr lifeOf) steps() string {
	var all []string
	for _, s := range tr.Steps {
		all = append(all, strings.TrimSpace(s.What+" "+s.Status))
	}
	return strings.Join(all, ", ")
}

// leaseEnd reads by SQLite alone when the only lease ends.
func leaseEnd(t *testing.T, db string) time.Time {
	t.Helper()
	d := byHand(t, db)
	defer d.Close()
	var ms int64
	if err := d.QueryRow("SELECT until FROM attempt WHERE key IS NOT NULL").Scan(&ms); err != nil {
		t.Fatal(err)
	}
	return time.UnixMilli(ms)
}

// stop ends a listener as Ctrl-C does.
func (s *server) interrupt() *server {
	s.t.Helper()
	if code := s.signal(os.Interrupt); code != 0 {
		s.t.Errorf("exit %d: %s", code, s.stderr)
	}
	return s
}

// messages reads what listen printed.
func (s *server) messages() (all []fullRecord) {
	s.t.Helper()
	for line := range strings.Lines(s.stdout.String()) {
		if strings.HasSuffix(line, "\n") { // else it was killed there
			all = append(all, parse[fullRecord](s.t, []byte(line)))
		}
	}
	return all
}

// awaitStatus waits until a message is acknowledged.
func (p *pair) awaitStatus(id, status string) fullRecord {
	p.t.Helper()
	eventually(p.t, patience, id+" is acknowledged as "+status, func() bool { return p.record(p.bob, id).status() == status })
	return p.record(p.bob, id)
}

// ackAs acknowledges over the API.
func (s *server) ackAs(a agent, id, status, detail string) {
	s.t.Helper()
	body := fmt.Sprintf(`{"status":%q,"client_ts":"2026-01-01T00:00:00Z","detail":%q}`, status, detail)
	s.ask(a, "POST", "/api/v1/messages/"+id+"/ack", body).want(s.t, 200)
}

// listen starts relay listen as bob, and returns when it is connected.
func (p *pair) listen(args ...string) *server {
	p.t.Helper()
	args = append([]string{"listen"}, args...)
	s := launchHere(p.t, args, p.bobEnv(p.url))
	s.await(s.stderr, `listening as bob\^talk`)
	return s
}

// listenAsProcess is listen for a test that signals the listener, or whose command needs its environment.
func (p *pair) listenAsProcess(args ...string) *server {
	p.t.Helper()
	s := launch(p.t, exec.Command(binary, append([]string{"listen"}, args...)...), p.bobEnv(p.url))
	s.await(s.stderr, `listening as bob\^talk`)
	return s
}

// words reads by SQLite alone what searches have learned of bob.
func (p *pair) words() (all []string) {
	p.t.Helper()
	d := byHand(p.t, p.db)
	defer d.Close()
	rows, err := d.Query("SELECT counts FROM learned JOIN mecha ON id = mecha WHERE address = 'bob^talk' ORDER BY first")
	if err != nil {
		p.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var counts []byte // words and the shares of each in turn, with their lengths in one byte
		if err := rows.Scan(&counts); err != nil {
			p.t.Fatal(err)
		}
		for i := 0; i < len(counts); i += 1 + int(counts[i]) {
			end := i + 1 + int(counts[i])
			all = append(all, string(counts[i+1:end]))
			i = end
		}
	}
	return all
}

func (p *pair) wantWords(want ...string) {
	p.t.Helper()
	eventually(p.t, patience, fmt.Sprintf("the words are %q", want), func() bool { return slices.Equal(p.words(), want) })
}

// describeBob returns bob a profile, and waits until searches find it.
func (p *pair) describeBob() {
	p.t.Helper()
	p.ask(p.bob, "PUT", "/api/v1/mecha/bob^talk/profile", `{"description":"books flights"}`).want(p.t, 200)
	eventually(p.t, patience, "bob is found", func() bool {
		return strings.Contains(string(p.search(p.alice, "flights")), "bob^talk")
	})
}
