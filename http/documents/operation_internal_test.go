package documents

import (
	"testing"

	"relay/http"
)

// Each row of the route table has an operation, and the other way round. That of the metrics comes
// from a ring.
func TestEveryRouteHasAnOperation(t *testing.T) {
	rows, all := map[string]bool{}, append(http.Routes(), Routes(nil, "")...)
	for _, row := range append(all, http.Route{Method: "GET", Path: "/metrics"}) {
		name := row.Method + " " + row.Path
		rows[name] = true
		if o, known := operations[name]; !known || o.id == "" || o.section == "" || len(o.answers) == 0 {
			t.Errorf("%s has no operation, or one without an id, a section of the protocol, or an answer", name)
		}
	}
	for name := range operations {
		if !rows[name] {
			t.Errorf("the operation %s has no route", name)
		}
	}
}
