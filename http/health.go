package http

import (
	"encoding/json"
	"net/http"

	"relay/db/relay"
)

// livez tells that the process runs.
func (s *Server) livez(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}

// readyz tells that requests will be answered, or why not.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	switch {
	case s.draining.Load():
		s.refuse(w, r, relay.Errorf(relay.ShuttingDown, "not ready: the relay is shutting down"))
	case s.DB.Failed() != nil:
		s.refuse(w, r, relay.Errorf(relay.Overloaded, "not ready: the store has failed"))
	case s.DB.Discards():
		writeJSON(w, http.StatusOK, map[string]any{"status": "ready", "accepting_messages": true, "store": "none: nothing is kept"})
	default:
		// Ready even when the disk is full: acknowledgements and reads go on.
		writeJSON(w, http.StatusOK, map[string]any{"status": "ready", "accepting_messages": s.DB.AcceptsMessages()})
	}
}

func (s *Server) version(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, s.Version)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	body, _ := json.Marshal(v) // maps and structs of strings cannot fail
	w.Header()["Content-Type"] = jsonContentType
	w.WriteHeader(status)
	w.Write(body)
}
