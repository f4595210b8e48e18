package bench

import (
	"math"
	"strconv"
)

// A scale gives values, which are above 0, their places along an axis, in pixels.
type scale struct {
	low, high  float64 // the values at both ends, or their logarithms
	begin, end float64 // the places of the ends
	log        bool
	ticks      []float64 // round values, for the grid; none if the ends are values
}

// exactScale has the first and the last value at its ends, and is logarithmic.
func exactScale(first, last, begin, end float64) scale {
	return scale{low: math.Log(first), high: math.Log(last), begin: begin, end: end, log: true}
}

// roundScale has round numbers at its ends: 0 or one below the first value, and one above
// the last.
func roundScale(first, last float64, log bool, begin, end float64) scale {
	s := scale{begin: begin, end: end, log: log}
	if log {
		s.ticks = powers(first, last)
	} else {
		s.ticks = steps(last)
	}
	s.low, s.high = s.value(s.ticks[0]), s.value(s.ticks[len(s.ticks)-1])
	return s
}

func (s *scale) value(v float64) float64 {
	if s.log {
		return math.Log(v)
	}
	return v
}

// at gives the place of a value: the middle, if the scale has only one.
func (s *scale) at(v float64) float64 {
	if s.low == s.high {
		return (s.begin + s.end) / 2
	}
	return s.begin + (s.value(v)-s.low)/(s.high-s.low)*(s.end-s.begin)
}

const mostTicks = 8

// round125 gives 1, 2 or 5 times a power of ten: number 0 is 1, number 1 is 2, number 3 is
// 10, number -1 is 0.5. It reads a decimal number, because powers of ten below 1 are not
// exact otherwise.
func round125(n int) float64 {
	power := int(math.Floor(float64(n) / 3))
	v, _ := strconv.ParseFloat(strconv.Itoa([]int{1, 2, 5}[n-3*power])+"e"+strconv.Itoa(power), 64)
	return v
}

// atMost gives the number of the largest round number that is not above v.
func atMost(v float64) int {
	n := 3 * int(math.Floor(math.Log10(v)))
	for round125(n) > v {
		n--
	}
	for round125(n+1) <= v {
		n++
	}
	return n
}

// steps gives equal steps from 0 to the first that is not below the last value.
func steps(last float64) (ticks []float64) {
	n := atMost(last / (mostTicks - 1))
	for math.Ceil(last/round125(n)) > mostTicks-1 {
		n++
	}
	step := round125(n)
	for i := range int(math.Ceil(last/step)) + 1 {
		ticks = append(ticks, float64(i)*step)
	}
	return ticks
}

// powers gives round numbers, each several times the one before, from one that is not
// above the first value to one that is not below the last.
func powers(first, last float64) (ticks []float64) {
	low, high := atMost(first), atMost(last)
	if round125(high) < last || high == low {
		high++
	}
	every := 1
	if high-low >= mostTicks { // whole powers of ten
		low, high = 3*int(math.Floor(float64(low)/3)), 3*int(math.Ceil(float64(high)/3))
		every = 3 * ((high-low)/3/mostTicks + 1)
	}
	n := low
	for ; n < high; n += every {
		ticks = append(ticks, round125(n))
	}
	return append(ticks, round125(n))
}
