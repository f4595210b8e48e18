package http

import (
	"encoding/json"
	"net/http"

	"relay/db"
)

// livez tells that the process runs.
func (s *Server) livez(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}

// readyz tells that requests will be answered, or why not.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	err := s.DB.Ready()
	if s.draining.Load() {
		err = db.Errorf(db.ShuttingDown, "the relay is shutting down")
	}
	if err != nil {
		e := db.Errorf(db.Overloaded, "not ready: the store has failed")
		switch code := db.ErrorCode(err); code {
		case db.ShuttingDown, db.DiskFull:
			e.Detail = "not ready: " + string(code)
		}
		s.refuse(w, r, e)
		return
	}
	writeJSON(w, http.StatusOK, map[string]string{"status": "ready"})
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
