package cmd_test

import (
	"strings"
	"testing"
)

func TestSendToACrew(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	carol := issue(t, p.db, "carol^talk")[0]
	r := does(t, p.asAlice, "send", "*^talk", `{"n":1}`).wantCode(t, 0)
	ids := strings.Fields(r.out)
	if len(ids) != 2 || r.err != "" {
		t.Fatalf("%q, %q", r.out, r.err)
	}
	for i, a := range []agent{p.bob, carol} {
		if h := p.history(a, ""); len(h) != 1 || h[0].MessageID != ids[i] {
			t.Errorf("%s has %+v, want %s", a.Address, h, ids[i])
		}
	}
	does(t, p.asAlice, "send", "*^talk", `{}`, "--wait-ack", "1s").wantCode(t, 2, "one recipient")
	does(t, p.asAlice, "send", "*^talk", `{}`, "--wait-reply", "1s").wantCode(t, 2, "one recipient")
	does(t, p.asAlice, "send", "*^", `{}`).wantCode(t, 2, "address")
	does(t, p.asAlice, "send", "*^other", `{}`).wantCode(t, 1, "broadcast_not_allowed")
}
