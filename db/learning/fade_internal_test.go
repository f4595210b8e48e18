package learning

import (
	"math"
	"testing"
	"time"

	"relay/db/relay"
)

func TestFadeIsExactAndNeverRises(t *testing.T) {
	const weight = 3 * relay.LearnedUnit
	before := int64(weight)
	for hours := int64(0); hours < 24*365*3; hours += 7 {
		got := fade(weight, hours, relay.DefaultHalfLife)
		want := weight * math.Exp2(-float64(hours)/(90*24))
		if math.Abs(float64(got)-want) > 2 || got > before {
			t.Fatalf("after %d hours: %d, want %.1f, at most %d", hours, got, want, before)
		}
		before = got
	}
	if fade(weight, -5, time.Hour) != weight || fade(weight, 1<<40, time.Hour) != 0 {
		t.Error("the past or the far future are counted otherwise")
	}
}
