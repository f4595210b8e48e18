package http_test

import (
	"strings"
	"testing"
	"time"

	"relay/db"
	"relay/db/relay"
)

// The sentence says what is wrong with this header, and speaks of no other fault.
func TestSentencesOfHeaders(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice := r.mustIssue("alice^demo")
	for _, row := range []struct {
		change
		code relay.Code
		want string
	}{
		{with("X-Nonce"), relay.MissingHeader, "X-Nonce is missing; every request carries X-Mecha-Key, X-Request-Timestamp and X-Nonce"},
		{with("X-Signature", ""), relay.MissingHeader, "X-Signature is empty; it must have a value"},
		{with("X-Nonce", "a", "b"), relay.MalformedHeader, "X-Nonce must be sent once, not 2 times"},
	} {
		if p := alice.get(whoami, row.change).wantProblem(401, row.code); p.Detail != row.want {
			t.Errorf("%q, want %q", p.Detail, row.want)
		}
	}
}

// typo returns key with its last character changed: the checksum tells.
func typo(key string) string {
	last := "0"
	if strings.HasSuffix(key, last) {
		last = "1"
	}
	return key[:len(key)-1] + last
}

func TestFaultyCredentials(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice := r.mustIssue("alice^demo")
	revoked, expired := r.mustIssue("alice^demo"), r.mustIssue("alice^demo", func(i *relay.IssueKey) { i.ExpiresAt = i.At.Add(time.Minute) })
	r.mustRevoke(revoked)
	r.clock.advance(time.Minute)
	stranger := mustServe(t).mustIssue("alice^demo")

	for name, row := range map[string]struct {
		change
		code relay.Code
	}{
		"no key":               {with("X-Mecha-Key"), relay.MissingHeader},
		"empty key":            {with("X-Mecha-Key", ""), relay.MissingHeader},
		"two keys":             {with("X-Mecha-Key", alice.Text, alice.Text), relay.MalformedHeader},
		"short key":            {with("X-Mecha-Key", alice.Text[:51]), relay.MalformedKey},
		"long key":             {with("X-Mecha-Key", alice.Text+"0"), relay.MalformedKey},
		"foreign prefix":       {with("X-Mecha-Key", "sk_"+alice.Text[3:]), relay.MalformedKey},
		"key with a dash":      {with("X-Mecha-Key", alice.Text[:20]+"-"+alice.Text[21:]), relay.MalformedKey},
		"typo in the key":      {with("X-Mecha-Key", typo(alice.Text)), relay.MalformedKey},
		"another relay's key":  {with("X-Mecha-Key", stranger.Text), relay.UnknownKey},
		"revoked key":          {with("X-Mecha-Key", revoked.Text), relay.KeyRevoked},
		"expired key":          {with("X-Mecha-Key", expired.Text), relay.KeyExpired},
		"no nonce":             {with("X-Nonce"), relay.MissingHeader},
		"empty nonce":          {with("X-Nonce", ""), relay.MissingHeader},
		"two nonces":           {with("X-Nonce", "a", "b"), relay.MalformedHeader},
		"nonce of 129":         {nonce(strings.Repeat("n", 129)), relay.MalformedHeader},
		"nonce with |":         {nonce("a|b"), relay.MalformedHeader},
		"nonce with a space":   {nonce("a b"), relay.MalformedHeader},
		"nonce with a comma":   {nonce("a,b"), relay.MalformedHeader},
		"nonce with ü":         {nonce("nü"), relay.MalformedHeader},
		"no timestamp":         {with("X-Request-Timestamp"), relay.MissingHeader},
		"empty timestamp":      {with("X-Request-Timestamp", ""), relay.MissingHeader},
		"two timestamps":       {with("X-Request-Timestamp", "2026-11-20T08:01:00Z", "2026-11-20T08:01:00Z"), relay.MalformedHeader},
		"Unix seconds":         {stamped("1795161660"), relay.MalformedHeader},
		"no zone":              {stamped("2026-11-20T08:01:00"), relay.MalformedHeader},
		"a space for the T":    {stamped("2026-11-20 08:01:00Z"), relay.MalformedHeader},
		"a comma for the dot":  {stamped("2026-11-20T08:01:00,5Z"), relay.MalformedHeader},
		"an hour of one digit": {stamped("2026-11-20T8:01:00Z"), relay.MalformedHeader},
		"an offset of +24:00":  {stamped("2026-11-21T08:01:00+24:00"), relay.MalformedHeader},
		"an offset of +0100":   {stamped("2026-11-20T09:01:00+0100"), relay.MalformedHeader},
		"31 November":          {stamped("2026-11-31T08:01:00Z"), relay.MalformedHeader},
		"empty signature":      {with("X-Signature", ""), relay.MissingHeader},
		"two signatures":       {with("X-Signature", "a", "b"), relay.MalformedHeader},
	} {
		t.Run(name, func(t *testing.T) {
			alice.in(t).get(whoami, row.change).wantProblem(401, row.code)
		})
	}
}

func TestGoodCredentials(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice := r.mustIssue("alice^demo")
	for name, c := range map[string]change{
		"a nonce of one":       nonce("n"),
		"a nonce of 128":       nonce(strings.Repeat("n", 128)),
		"every nonce letter":   nonce("AZaz09._~:+/=-"),
		"a nonce like Base64":  nonce("q83vEjRWeJA/+a=="),
		"seconds":              stamped("2026-11-20T08:00:00Z"),
		"nanoseconds":          stamped("2026-11-20T08:00:00.123456789Z"),
		"more digits":          stamped("2026-11-20T08:00:00.1234567890123Z"),
		"small letters":        stamped("2026-11-20t08:00:00z"),
		"east":                 stamped("2026-11-20T13:30:00+05:30"),
		"west, the day before": stamped("2026-11-19T22:00:00-10:00"),
		"an unknown offset":    stamped("2026-11-20T08:00:00-00:00"),
		"unsigned":             unsigned,
		"any content type":     with("Content-Type", "application/x-www-form-urlencoded"),
		"identity":             with("Content-Encoding", "identity"),
	} {
		t.Run(name, func(t *testing.T) {
			alice.in(t).get(whoami, c).want(200)
		})
	}
}

func TestTheTimestampMayBeOffByTheSkew(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice := r.mustIssue("alice^demo")
	now, skew := r.clock.Now(), r.settings.api.ClockSkew
	for _, off := range []time.Duration{0, skew - time.Nanosecond, skew} {
		alice.get(whoami, at(now.Add(off))).want(200)
		alice.get(whoami, at(now.Add(-off))).want(200)
	}
	for _, off := range []time.Duration{skew + time.Nanosecond, skew + time.Millisecond, time.Hour, 100 * 365 * 24 * time.Hour} {
		for _, ts := range []time.Time{now.Add(off), now.Add(-off)} {
			p := alice.get(whoami, at(ts)).wantProblem(401, relay.TimestampOutOfRange)
			if p.ServerTime != relay.FormatTime(now) {
				t.Errorf("server_time is %q, want %s", p.ServerTime, relay.FormatTime(now))
			}
		}
	}
	r.clock.advance(time.Hour) // it is the relay's clock that counts
	alice.get(whoami, at(now)).wantProblem(401, relay.TimestampOutOfRange)
	alice.get(whoami).want(200)
}

func TestWhoami(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice := r.mustIssue("alice^demo", func(i *relay.IssueKey) { i.Label, i.ExpiresAt = `my "laptop"`, i.At.Add(time.Hour) })
	alice.get(whoami).want(200).
		wantField("mecha_id", `"alice^demo"`).wantField("key_id", `"`+string(alice.ID)+`"`).
		wantField("label", `"my \"laptop\""`).wantField("expires_at", `"2026-11-20T09:00:00.000Z"`).
		wantField("signature_required", "false").wantField("server_time", `"2026-11-20T08:00:00.000Z"`)
	r.mustIssue("bob^demo").get(whoami).want(200).wantField("mecha_id", `"bob^demo"`).wantField("expires_at", "null")

	strict := mustServe(t, func(s *settings) { s.api.RequireSignature = true })
	strict.mustIssue("alice^demo").get(whoami).want(200).wantField("signature_required", "true")
}

func TestAKeyLivesFromIssueToItsEnd(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	brief := r.mustIssue("alice^demo", func(i *relay.IssueKey) { i.ExpiresAt = i.At.Add(time.Minute) })
	lasting := r.mustIssue("alice^demo")
	brief.get(whoami).want(200)
	r.clock.advance(time.Minute - time.Millisecond)
	brief.get(whoami).want(200)
	r.clock.advance(time.Millisecond)
	brief.get(whoami).wantProblem(401, relay.KeyExpired)
	lasting.get(whoami).want(200) // a Mecha may have several

	r.mustRevoke(lasting)
	lasting.get(whoami).wantProblem(401, relay.KeyRevoked)
	r.mustRestart()
	lasting.r, brief.r = r, r
	lasting.get(whoami).wantProblem(401, relay.KeyRevoked)
}

// The command line issues and revokes in a process of its own.
func TestKeysOfAnotherProcess(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	o := r.settings.db
	o.Create, o.Serve = false, false
	other, err := db.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for range 3 {
		k, err := other.Issue(&relay.IssueKey{At: r.clock.Now(), Address: "carol^demo"})
		if err != nil {
			t.Fatal(err)
		}
		carol := mecha{r, k}
		carol.get(whoami).want(200) // at once
		carol.mustSend(carol)

		if err := other.Revoke(&relay.RevokeKey{At: r.clock.Now(), ID: k.ID}); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(patience); carol.get(whoami).status == 200; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) { // §10 says one second; a busy machine may be slower
				t.Fatal("a revoked key still works")
			}
		}
		carol.get(whoami).wantProblem(401, relay.KeyRevoked)
	}
}

func TestRotation(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	old := r.mustIssue("alice^demo", func(i *relay.IssueKey) { i.WithSecret, i.Label = true, "laptop" })
	fresh := r.mustIssue("", func(i *relay.IssueKey) { i.Replaces, i.Overlap = old.ID, time.Hour })
	if fresh.Secret == "" || fresh.Secret == old.Secret || fresh.Text == old.Text {
		t.Fatal("rotating gave no new secret")
	}
	fresh.get(whoami).want(200).wantField("mecha_id", `"alice^demo"`).wantField("label", `"laptop"`)
	fresh.get(whoami, signedBy(old.Secret)).wantProblem(401, relay.InvalidSignature)
	old.get(whoami).want(200)
	old.get(whoami, signedBy(fresh.Secret)).wantProblem(401, relay.InvalidSignature)
	r.clock.advance(time.Hour)
	old.get(whoami).wantProblem(401, relay.KeyExpired)
	fresh.get(whoami).want(200)
}
