package console_test

import (
	"strings"
	"testing"
)

// The keys that need somebody come first, and nothing of them is secret.
func TestTheKeysAreListed(t *testing.T) {
	p := mustPlay(t, true)
	c := p.enter()
	_, page := p.get(c, "/keys")
	wantText(t, "the page", words(page), "1 key expires within 14 days.", "3 keys were never used: were their workers never started?", "7 keys are live.", "all 8", "ends soon 1", "revoked 1", "31 min ago")
	last := -1
	for _, state := range []string{`class="warn">ends soon`, `class="quiet">never used`, `class="good">live`, `class="quiet">revoked`} {
		at := strings.Index(page, state)
		if at <= last {
			t.Errorf("%s is out of order, or missing", state)
		}
		last = at
	}
	for _, k := range []string{p.alice.Text, p.bob.Text, p.bob.Secret, "mk_", "ms_"} {
		if k != "" && strings.Contains(page, k) {
			t.Error("a secret is shown")
		}
	}
	_, page = p.get(c, "/keys?state=revoked")
	if strings.Count(page, "<tr id=") != 1 || !strings.Contains(page, "old laptop") {
		t.Error("not the revoked key alone")
	}
	_, page = p.get(c, "/keys?q=LAB")
	if strings.Count(page, "<tr id=") != 3 {
		t.Error("a filter finds others")
	}
	for i := range 105 {
		p.mustIssue(address("m%03d^crowd", i), "")
	}
	_, page = p.get(c, "/keys?q=crowd")
	more := nextOf(page)
	_, second := p.get(c, more)
	if strings.Count(page, "<tr id=") != 100 || strings.Count(second, "<tr id=") != 5 || nextOf(second) != "" {
		t.Errorf("%d and %d keys", strings.Count(page, "<tr id="), strings.Count(second, "<tr id="))
	}
}
