package learning

import (
	"math"
	"time"
)

// fade returns what is left of a weight after a number of hours. It uses only whole
// numbers, so that the result is the same on every machine. Negative hours change nothing.
func fade(weight, hours int64, halfLife time.Duration) int64 {
	half := max(int64(halfLife/time.Hour), 1)
	if hours <= 0 {
		return weight
	}
	if hours/half > 62 {
		return 0
	}
	weight >>= hours / half
	// Between two steps of the table, the line is within a ten-thousandth of the curve.
	at := hours % half * fadeSteps
	step, rest := at/half, at%half
	factor := fadeTable[step] - (fadeTable[step]-fadeTable[step+1])*rest/half
	return weight * factor >> fadeBits
}

const (
	fadeSteps = 64
	fadeBits  = 16
)

// fadeTable has 2^(-i/fadeSteps). Rounded to 16 bits, it is the same on every machine.
var fadeTable = func() (t [fadeSteps + 1]int64) {
	for i := range t {
		t[i] = int64(math.Round(math.Exp2(-float64(i)/fadeSteps) * (1 << fadeBits)))
	}
	return t
}()
