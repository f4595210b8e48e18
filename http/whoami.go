package http

// whoami answers GET /api/v1/whoami. A client that has only a key learns its own
// address here.
func (s *Server) whoami(c *call) (answer, error) {
	b := appendField(nil, '{', "mecha_id", string(c.key.Mecha.Address))
	b = appendField(b, ',', "key_id", string(c.key.ID))
	b = appendField(b, ',', "label", c.key.Label)
	b = appendTime(b, ',', "expires_at", c.key.ExpiresAt)
	b = appendBool(b, ',', "signature_required", s.config.RequireSignature || s.config.RequireRequestSignature)
	b = appendBool(b, ',', "request_signature_required", s.config.RequireRequestSignature)
	b = appendTime(b, ',', "server_time", c.at)
	return ok(append(b, '}'))
}
