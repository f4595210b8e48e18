package http

import (
	"crypto/hmac"
	"strings"

	"relay/db/relay"
)

// checkSignatures verifies the signatures that a request carries, and refuses a request
// without one that is required (PROTOCOL §2). A request signature covers all that a
// signature does, so either will do where signatures are required.
func (s *Server) checkSignatures(c *call, timestamp string) error {
	secret := c.key.SigningSecret()
	request, hasRequest, err := signature(c, "X-Request-Signature")
	if err != nil {
		return err
	}
	if !hasRequest && s.config.RequireRequestSignature {
		return relay.Errorf(relay.SignatureRequired,
			"this relay accepts only requests whose method and path are signed, too; send X-Request-Signature")
	}
	body, hasBody, err := signature(c, "X-Signature")
	if err != nil {
		return err
	}
	if !hasBody && !hasRequest && s.config.RequireSignature {
		return relay.Errorf(relay.SignatureRequired, "this relay accepts signed requests only; send X-Signature")
	}
	if hasBody && !hmac.Equal(body, relay.Sign(secret, c.body, c.nonce, timestamp)) {
		return relay.Errorf(relay.InvalidSignature,
			"X-Signature is not the HMAC-SHA256 of body|nonce|timestamp under this key's signing secret")
	}
	if hasRequest {
		// A bar in the path or the query would give the signed text a second reading.
		if strings.Contains(c.RequestURI, "|") {
			return relay.Errorf(relay.InvalidSignature,
				"a request with X-Request-Signature has bars in its path and query encoded as %%7C")
		}
		if !hmac.Equal(request, relay.SignRequest(secret, c.Method, c.RequestURI, c.body, c.nonce, timestamp)) {
			return relay.Errorf(relay.InvalidSignature, "X-Request-Signature is not the HMAC-SHA256 of "+
				"METHOD|path?query|body|nonce|timestamp under this key's signing secret")
		}
	}
	c.signed = hasBody || hasRequest
	return nil
}

// signature reads a header with a signature. It returns false if the request has none.
func signature(c *call, name string) (_ []byte, there bool, err error) {
	if len(c.Header[name]) == 0 {
		return nil, false, nil
	}
	text, err := header(c.Request, name)
	if err != nil {
		return nil, false, err
	}
	signature, err := decodeSignature(name, text)
	return signature, err == nil, err
}

// decodeSignature reads the signature in the header or the field of that name.
func decodeSignature(name, text string) ([]byte, error) {
	signature, ok := relay.DecodeSignature(text)
	if !ok {
		return nil, relay.Errorf(relay.MalformedHeader, "%s must be the Base64 of 32 bytes", name)
	}
	return signature, nil
}
