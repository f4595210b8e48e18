package http

import (
	"net/http"

	"relay/db/relay"
)

// livez answers GET /livez: the process runs.
func (s *Server) livez(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, map[string]string{"status": "ok"})
}

// part is a part of the relay as /readyz shows it.
type part struct {
	Name   string `json:"name"`
	Ready  bool   `json:"ready"`
	Needed bool   `json:"needed"`           // the relay is ready only if the part is
	Detail string `json:"detail,omitempty"` // why it is not ready
}

// readiness is the answer of /readyz while the relay is ready.
type readiness struct {
	Status    string `json:"status"`
	Accepting bool   `json:"accepting_messages"`
	Parts     []part `json:"parts"`
}

// readyz answers GET /readyz: requests are answered, or why they are not.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	parts, err := s.parts()
	if err != nil {
		s.refuseWith(w, r, err, parts)
		return
	}
	writeJSON(w, readiness{"ready", s.config.DB.AcceptsMessages(), parts})
}

// parts looks at each part of the relay. The error comes from the first required part that is not ready.
func (s *Server) parts() (all []part, err error) {
	add := func(name string, fault error) {
		p := part{Name: name, Ready: fault == nil, Needed: true}
		if fault != nil {
			p.Detail = fault.(*relay.Error).Detail
		}
		all = append(all, p)
		if err == nil {
			err = fault
		}
	}
	var stopping, failed error
	if s.draining.Load() {
		stopping = relay.Errorf(relay.ShuttingDown, "not ready: the relay is shutting down")
	}
	if s.config.DB.Failed() != nil {
		failed = relay.Errorf(relay.Overloaded, "not ready: the store has failed")
	}
	add("requests", stopping)
	add("store", failed)
	add("write_lock", s.config.DB.CheckWritable())
	if s.config.DB.MayBeStale() {
		add("cluster", s.config.DB.CheckFresh())
	}

	disk := part{Name: "disk", Ready: s.config.DB.AcceptsMessages()}
	if !disk.Ready { // acknowledgements and reads keep working
		disk.Detail = "the disk has no room for messages (--min-free-disk); they get 507"
	}
	index := part{Name: "search_index", Ready: s.config.Finder.Ready()}
	if !index.Ready { // searches find what is there already
		index.Detail = "the search index is catching up with the profiles"
	}
	return append(all, disk, index), err
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
