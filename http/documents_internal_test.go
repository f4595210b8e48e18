package http

import "testing"

// Each row of the route table has an operation, and the other way round.
func TestEveryRouteHasAnOperation(t *testing.T) {
	rows := map[string]bool{}
	for _, row := range (*Server)(nil).routes() {
		name := row.method + " " + row.path
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
