package conformance

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"time"

	"relay/db/relay"
)

// reads and writes that must be refused, too: one of each.
func (s *session) everywhere(what string, changes ...change) error {
	if err := s.refused("a list "+what, s.first, "GET", s.first.history("limit=1"), "", changes...); err != nil {
		return err
	}
	return s.refused("a send "+what, s.first, "POST", messagesPath, s.message(s.first, s.second, `{}`, ""), changes...)
}

func checkKey(s *session) error {
	if err := s.everywhere("without X-Mecha-Key", without("X-Mecha-Key")); err != nil {
		return err
	}
	return s.everywhere("with an unknown key", with("X-Mecha-Key", "unknown"))
}

func checkTimestamp(s *session) error {
	if err := s.everywhere("without X-Request-Timestamp", without("X-Request-Timestamp"), s.unsigned()); err != nil {
		return err
	}
	return s.everywhere("with a timestamp that is not RFC 3339", with("X-Request-Timestamp", "yesterday"), s.unsigned())
}

// unsigned takes the signature away, so that only the other header is wrong.
func (s *session) unsigned() change { return without("X-Signature") }

func checkNonce(s *session) error {
	return s.everywhere("without X-Nonce", without("X-Nonce"), s.unsigned())
}

func checkTimestampForms(s *session) error {
	east := time.FixedZone("", 5*3600+1800)
	for _, timestamp := range []string{now(), time.Now().UTC().Format("2006-01-02T15:04:05.123Z07:00"),
		time.Now().UTC().Format(time.RFC3339Nano), time.Now().In(east).Format(time.RFC3339),
		time.Now().UTC().Format("2006-01-02T15:04:05") + "+00:00"} {
		r, err := s.doAt(s.first, timestamp, "GET", s.first.history("limit=1"), "")
		if err != nil {
			return err
		}
		if r.status/100 != 2 {
			return fmt.Errorf("the timestamp %s is refused: %v", timestamp, r)
		}
	}
	return nil
}

// checkSignature sends the bodies of the vectors: what is signed is bytes, not JSON.
func checkSignature(s *session) error {
	if err := s.succeeds(s.first, "GET", s.first.history("limit=1"), ""); err != nil {
		return fmt.Errorf("signed, with an empty body: %w", err)
	}
	for _, p := range append(payloads, `{"wide":"`+strings.Repeat("ä", 5000)+`"}`) {
		for _, body := range []string{s.message(s.first, s.second, p, ""), " " + s.message(s.first, s.second, p, "") + "\n",
			strings.Replace(s.message(s.first, s.second, p, ""), ",", " ,\r\n\t", 1)} {
			if _, err := s.sendBody(s.first, s.second, body); err != nil {
				return fmt.Errorf("signed: %w", err)
			}
		}
	}
	return nil
}

func checkSignatureWrong(s *session) error {
	body := s.message(s.first, s.second, `{}`, "")
	of := func(secret, body, nonce, timestamp string) string {
		return encode(relay.Sign(secret, []byte(body), nonce, timestamp))
	}
	for what, make := range map[string]func(nonce, timestamp string) string{
		"of another secret":           func(n, t string) string { return of("another", body, n, t) },
		"of another body":             func(n, t string) string { return of(s.first.secret(), body+" ", n, t) },
		"of an empty body":            func(n, t string) string { return of(s.first.secret(), "", n, t) },
		"of another nonce":            func(n, t string) string { return of(s.first.secret(), body, n+"x", t) },
		"of another timestamp":        func(n, t string) string { return of(s.first.secret(), body, n, t+"x") },
		"in which the order is wrong": func(n, t string) string { return of(s.first.secret(), body, t, n) },
		"that is not Base64":          func(string, string) string { return "!" },
		"that is cut short":           func(n, t string) string { return of(s.first.secret(), body, n, t)[:20] },
	} {
		wrong := func(h http.Header) {
			h.Set("X-Signature", make(h.Get("X-Nonce"), h.Get("X-Request-Timestamp")))
		}
		if err := s.refused("a send with a signature "+what, s.first, "POST", messagesPath, body, wrong); err != nil {
			return err
		}
	}
	return nil
}

func checkSignatureRequired(s *session) error {
	r, err := s.do(s.first, "GET", s.first.history("limit=1"), "", s.unsigned())
	if err != nil {
		return err
	}
	if r.status/100 == 2 {
		return skipped("the server runs without REQUIRE_MESSAGE_SIGNATURE")
	}
	if err := s.everywhere("without a signature", s.unsigned()); err != nil {
		return err
	}
	return s.noSocket("without a signature", s.second, s.unsigned())
}

func checkHandshake(s *session) error {
	for what, wrong := range map[string]change{
		"without X-Mecha-Key":         both(without("X-Mecha-Key"), s.unsigned()),
		"without X-Request-Timestamp": both(without("X-Request-Timestamp"), s.unsigned()),
		"without X-Nonce":             both(without("X-Nonce"), s.unsigned()),
		"with a wrong signature":      with("X-Signature", encode(bytes.Repeat([]byte{1}, 32))),
	} {
		if err := s.noSocket(what, s.second, wrong); err != nil {
			return err
		}
	}
	return nil
}
