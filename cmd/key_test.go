package cmd_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
)

const soon = patience // PROTOCOL §10: revoked means refused within a second; a busy machine may be slower

// refusedSoon expects a key to be refused with a code soon, and for good.
func refusedSoon(s *server, a agent, code string) {
	s.t.Helper()
	eventually(s.t, soon, "401 "+code, func() bool {
		ans := s.ask(a, "GET", "/api/v1/whoami", "")
		return ans.status == http.StatusUnauthorized && ans.code() == code
	})
	s.ask(a, "GET", "/api/v1/whoami", "").wantProblem(s.t, 401, code)
}

func TestARevokedKeyIsRefusedAndItsSocketsClosed(t *testing.T) {
	t.Parallel()
	db := tempDB(t)
	keys := issue(t, db, "alice^keys", "alice^keys", "bob^keys")
	alice, spare, bob := keys[0], keys[1], keys[2]
	s := startServer(t, db)
	conn, spareConn, bobConn := s.dial(alice, ""), s.dial(spare, ""), s.dial(bob, "")
	polled := make(chan answer, 1)
	go func() {
		ans, _ := alice.request("GET", "/api/v1/mecha/alice^keys/messages?wait=30", "").to(s.url)
		polled <- ans
	}()
	s.ask(alice, "GET", "/api/v1/whoami", "").want(t, 200)

	mustRelay(t, "key", "revoke", alice.KeyID, "--db", db)
	wantClosed(t, conn, websocket.StatusPolicyViolation, soon)
	refusedSoon(s, alice, "key_revoked")
	select {
	case ans := <-polled:
		ans.wantProblem(t, 401, "key_revoked")
	case <-time.After(soon):
		t.Error("the long-poll goes on")
	}
	// The Mecha's other key works on, and so do all others.
	s.send(bob, "alice^keys", `{"n":1}`)
	s.send(spare, "bob^keys", `{"n":2}`)
	for _, c := range []*websocket.Conn{spareConn, bobConn} {
		if _, _, err := c.Read(t.Context()); err != nil {
			t.Error(err)
		}
	}
	mustRelay(t, "key", "revoke", alice.KeyID, "--db", db) // again changes nothing
	runRelay(t, "key", "revoke", "key_0000000000000000", "--db", db).wantCode(t, 1, "there is no key")
}

func TestANewKeyWorksWhenTheCommandReturns(t *testing.T) {
	t.Parallel()
	db := tempDB(t)
	s := startServer(t, db)
	first := issue(t, db, "first^keys")[0]
	for _, address := range []string{"a^keys", "b^keys", "c^keys"} {
		body := `{"to":"` + address + `","payload":{}}`
		s.ask(first, "POST", "/api/v1/messages", body).wantProblem(t, 404, "recipient_not_found")
		a := issue(t, db, address)[0]
		s.ask(a, "GET", "/api/v1/whoami", "").want(t, 200)
		s.ask(first, "POST", "/api/v1/messages", body).want(t, 201)
		if h := s.history(a, ""); len(h) != 1 {
			t.Errorf("%s has %+v", address, h)
		}
	}
}

func TestRotationOverlaps(t *testing.T) {
	t.Parallel()
	db := tempDB(t)
	old := agents(t, mustRelay(t, "key", "create", "alice^keys", "--create", "--label", "laptop", "--json", "--db", db))[0]
	s := startServer(t, db)
	s.ask(old, "GET", "/api/v1/whoami", "").want(t, 200)

	next := agents(t, mustRelay(t, "key", "rotate", old.KeyID, "--overlap", "24h", "--json", "--db", db))[0]
	s.ask(next, "GET", "/api/v1/whoami", "").want(t, 200)
	s.ask(old, "GET", "/api/v1/whoami", "").want(t, 200)
	conn := s.dial(next, "")

	last := agents(t, mustRelay(t, "key", "rotate", next.KeyID, "--overlap", "0", "--json", "--db", db))[0]
	s.ask(last, "GET", "/api/v1/whoami", "").want(t, 200)
	wantClosed(t, conn, websocket.StatusPolicyViolation, soon)
	refusedSoon(s, next, "key_expired")
	s.ask(old, "GET", "/api/v1/whoami", "").want(t, 200)
	if next.Address != "alice^keys" || last.Address != "alice^keys" {
		t.Errorf("rotated to %s and %s", next.Address, last.Address)
	}
	// The error offers what can be done: a key that has ended cannot be rotated.
	if r := runRelay(t, "key", "rotate", next.KeyID, "--db", db).wantCode(t, 1, "expired", "ask for a new one (relay key create)"); strings.Contains(r.err, "rotate it") {
		t.Errorf("%s", r.err)
	}

	// A short overlap ends without a command.
	conn = s.dial(last, "")
	issued := time.Now()
	mustRelay(t, "key", "rotate", last.KeyID, "--overlap", "1s", "--db", db)
	wantClosed(t, conn, websocket.StatusPolicyViolation, soon)
	if took := time.Since(issued); took < time.Second {
		t.Errorf("an overlap of 1 s ended after %v", took)
	}
	s.ask(last, "GET", "/api/v1/whoami", "").wantProblem(t, 401, "key_expired")
}

func TestKeyListShowsWhatBecameOfTheKeys(t *testing.T) {
	db := tempDB(t)
	a := agents(t, mustRelay(t, "key", "create", "a^keys", "--create", "--label", "laptop", "--expires", "90d", "--json", "--db", db))[0]
	b := issue(t, db, "b^keys", "--signing-secret")[0]
	mustRelay(t, "key", "rotate", a.KeyID, "--overlap", "0", "--db", db)
	mustRelay(t, "key", "revoke", b.KeyID, "--db", db)

	type row struct {
		KeyID     string `json:"key_id"`
		MechaID   string `json:"mecha_id"`
		Label     string
		State     string
		HasSecret bool    `json:"has_signing_secret"`
		ExpiresAt *string `json:"expires_at"`
		RevokedAt *string `json:"revoked_at"`
	}
	var rows []row
	for line := range strings.Lines(mustRelay(t, "key", "list", "--json", "--db", db)) {
		rows = append(rows, parse[row](t, []byte(line)))
	}
	if len(rows) != 3 || rows[0].KeyID != a.KeyID || rows[1].KeyID != b.KeyID {
		t.Fatalf("%+v", rows)
	}
	if r := rows[0]; r.State != "expired" || r.Label != "laptop" || r.ExpiresAt == nil || r.RevokedAt != nil || r.HasSecret {
		t.Errorf("rotated: %+v", r)
	}
	if r := rows[1]; r.State != "revoked" || r.RevokedAt == nil || !r.HasSecret {
		t.Errorf("revoked: %+v", r)
	}
	if r := rows[2]; r.State != "live" || r.MechaID != "a^keys" || r.Label != "laptop" {
		t.Errorf("successor: %+v", r)
	}
	text := mustRelay(t, "key", "list", "b^keys", "--db", db)
	if !strings.Contains(text, b.KeyID) || !strings.Contains(text, "revoked") || strings.Contains(text, a.KeyID) {
		t.Errorf("key list b^keys:\n%s", text)
	}
	for _, secret := range []string{a.Key, b.Key, *b.Secret} {
		if strings.Contains(text+mustRelay(t, "key", "list", "--json", "--db", db), secret) {
			t.Error("key list shows a secret")
		}
	}
}

func TestALabelCannotForgeTheList(t *testing.T) {
	db := tempDB(t)
	issue(t, db, "b^keys")
	r := runRelay(t, "key", "create", "a^keys", "--label", "x\nkey_forged  \x1b[31mb^keys\tz", "--db", db)
	if r.code != 2 || r.out != "" || !strings.Contains(r.err, "control characters") {
		t.Errorf("exit %d\n%s\n%s", r.code, r.out, r.err)
	}
	if text := mustRelay(t, "key", "list", "--db", db); strings.Count(text, "\n") != 2 {
		t.Errorf("%q", text)
	}
}

func TestWhenAKeyWasLastUsed(t *testing.T) {
	t.Parallel()
	db := tempDB(t)
	a := issue(t, db, "a^keys")[0]
	s := startServer(t, db)
	s.ask(a, "GET", "/api/v1/whoami", "").want(t, 200)
	issue(t, db, "b^keys") // the change of another key must not lose it
	b := issue(t, db, "c^keys")[0]
	s.ask(b, "GET", "/api/v1/whoami", "").want(t, 200)
	conn := s.dial(b, "")
	mustRelay(t, "key", "revoke", b.KeyID, "--db", db)
	wantClosed(t, conn, websocket.StatusPolicyViolation, soon) // now the server knows
	s.end()
	used := parse[struct {
		At *time.Time `json:"last_used_at"`
	}](t, []byte(mustRelay(t, "key", "list", "a^keys", "--json", "--db", db)))
	if used.At == nil || time.Since(*used.At) > time.Minute {
		t.Errorf("last used %v, want a moment ago", used.At)
	}
}

func TestOnlyTheSigningSecretVerifies(t *testing.T) {
	db := tempDB(t)
	a := issue(t, db, "a^keys", "--signing-secret")[0]
	if a.Secret == nil || !strings.HasPrefix(*a.Secret, "ms_") {
		t.Fatalf("secret %v", a.Secret)
	}
	s := startServer(t, db)
	s.ask(a, "GET", "/api/v1/whoami", "").want(t, 200)
	byKey := a
	byKey.Secret = nil
	s.ask(byKey, "GET", "/api/v1/whoami", "").wantProblem(t, 401, "invalid_signature")

	next := agents(t, mustRelay(t, "key", "rotate", a.KeyID, "--json", "--db", db))[0]
	if next.Secret == nil || *next.Secret == *a.Secret {
		t.Fatal("rotation must issue a new secret")
	}
	s.ask(next, "GET", "/api/v1/whoami", "").want(t, 200)
	s.ask(a, "GET", "/api/v1/whoami", "").want(t, 200)
	crossed := next
	crossed.Secret = a.Secret
	s.ask(crossed, "GET", "/api/v1/whoami", "").wantProblem(t, 401, "invalid_signature")
}

func TestLookAlikesOfAnAddressAreRefused(t *testing.T) {
	db := tempDB(t)
	issue(t, db, "Alice^keys")
	r := runRelay(t, "key", "create", "alice^keys", "--db", db).wantCode(t, 2, "letter case")
	if r.out != "" {
		t.Errorf("it printed %q", r.out)
	}
}

func TestAKeyCommandWantsAKeyID(t *testing.T) {
	db := tempDB(t)
	a := issue(t, db, "a^keys")[0]
	for _, command := range []string{"revoke", "rotate"} {
		r := runRelay(t, "key", command, a.Key, "--db", db) // the key instead of its id
		r.wantCode(t, 2, "key id")
		if strings.Contains(r.out+r.err, a.Key) {
			t.Errorf("key %s repeats the secret: %s", command, r.err)
		}
	}
}

// Keys are issued and revoked while the server writes as much as it can.
func TestKeysChangeUnderLoad(t *testing.T) {
	t.Parallel()
	db := tempDB(t)
	all := issue(t, db, "m0^load", "m1^load", "m2^load", "m3^load", "m4^load", "m5^load", "m6^load", "m7^load")
	s := startServer(t, db, "--rate-limit", "0", "--max-pending", "0")
	stop := make(chan struct{})
	var sent atomic.Int64
	var wg sync.WaitGroup
	for i, a := range all {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				ans, err := a.request("POST", "/api/v1/messages", `{"to":"`+all[(i+1)%len(all)].Address+`","payload":{}}`).to(s.url)
				if err != nil || ans.status != http.StatusCreated {
					t.Errorf("%v, status %d: %s", err, ans.status, ans.body)
					return
				}
				sent.Add(1)
			}
		})
	}
	var longest time.Duration
	for i := range rounds(t, 1, 9) {
		began := time.Now()
		a := issue(t, db, fmt.Sprintf("new%d^load", i))[0]
		longest = max(longest, time.Since(began))
		s.ask(a, "GET", "/api/v1/whoami", "").want(t, 200)
		conn := s.dial(a, "")
		began = time.Now()
		mustRelay(t, "key", "revoke", a.KeyID, "--db", db)
		longest = max(longest, time.Since(began))
		wantClosed(t, conn, websocket.StatusPolicyViolation, soon)
		refusedSoon(s, a, "key_revoked")
	}
	close(stop)
	wg.Wait()
	if longest > patience/2 { // what waits for the file's lock waits for 10 s
		t.Errorf("a command took %v", longest)
	}
	t.Logf("%d messages meanwhile; the longest command took %v", sent.Load(), longest)
}

// A command that opens the file for a moment must not expire messages. That is
// left to the server, which has listeners for them.
func TestACommandDoesNotExpireMessages(t *testing.T) {
	t.Parallel()
	db := tempDB(t)
	keys := issue(t, db, "alice^keys", "bob^keys")
	s := startServer(t, db)
	conn := s.dial(keys[0], "?events=receipts")
	for i := range rounds(t, 1, 3) {
		m := parse[record](t, s.ask(keys[0], "POST", "/api/v1/messages", `{"to":"bob^keys","payload":{},"ttl_seconds":1}`).want(t, 201))
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		got := make(chan error, 1)
		go func() {
			_, frame, err := conn.Read(ctx)
			if err == nil && !strings.Contains(string(frame), m.MessageID) {
				err = fmt.Errorf("got %s", frame)
			}
			got <- err
		}()
		expires := m.CreatedAt.Add(time.Second)
		time.Sleep(time.Until(expires.Add(-50 * time.Millisecond)))
		for time.Now().Before(expires.Add(200 * time.Millisecond)) {
			issue(t, db, "bob^keys")
		}
		if err := <-got; err != nil {
			t.Fatalf("no receipt for the expiry of message %d: %v", i, err)
		}
		cancel()
	}
}

// A key that could not be printed is lost: the command fails, and names the key, so that it can be revoked.
func TestAKeyThatCannotBePrintedIsAnError(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("there is no /dev/full")
	}
	defer full.Close()
	db := tempDB(t)
	for _, args := range [][]string{{"key", "create", "a^x"}, {"key", "create", "a^x", "--json"}} {
		var stderr bytes.Buffer
		c := exec.Command(binary, append(args, "--create", "--db", db)...)
		c.Env, c.Stdout, c.Stderr = environ(), full, &stderr
		if err := c.Run(); c.ProcessState.ExitCode() != 1 || !strings.Contains(stderr.String(), "relay key revoke key_") {
			t.Errorf("%v: %v, %s", args, err, &stderr)
		}
	}
}
