package http

import (
	"net/http"

	"relay/db/relay"
)

// livez answers GET /livez: the process runs.
func (s *Server) livez(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, map[string]string{"status": "ok"})
}

// readyz answers GET /readyz: requests are answered, or why they are not.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	locked := s.config.DB.CheckWritable()
	switch {
	case s.draining.Load():
		s.refuse(w, r, relay.Errorf(relay.ShuttingDown, "not ready: the relay is shutting down"))
	case s.config.DB.Failed() != nil:
		s.refuse(w, r, relay.Errorf(relay.Overloaded, "not ready: the store has failed"))
	case locked != nil:
		s.refuse(w, r, locked)
	default:
		// A full disk does not make the relay unready: acknowledgements and reads go on.
		writeJSON(w, map[string]any{"status": "ready", "accepting_messages": s.config.DB.AcceptsMessages()})
	}
}

// version answers GET /version.
func (s *Server) version(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, s.config.Version)
}

func writeJSON(w http.ResponseWriter, v any) {
	body, _ := encode(v) // strings and bools cannot fail
	w.Header()["Content-Type"] = jsonContentType
	w.Write(body) // an error means that the client has gone
}
