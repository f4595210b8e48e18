package cli

import (
	"strconv"
	"strings"
	"time"
)

// Days is a duration that may be given in days: 30d, 12h. It implements pflag.Value.
type Days time.Duration

func (d *Days) Set(text string) error {
	v, err := ParseDuration(text)
	*d = Days(v)
	return err
}

func (d *Days) Type() string { return "days" }

func (d *Days) String() string {
	const day = 24 * time.Hour
	switch v := time.Duration(*d); {
	case v == 0:
		return "0" // which pflag does not show as a default
	case v%day != 0:
		return v.String()
	default:
		return strconv.Itoa(int(v/day)) + "d"
	}
}

// ParseDuration reads a duration, which may be in days: 90d, 12h, 0. An empty text, such as a variable set to
// "", is an error.
func ParseDuration(s string) (time.Duration, error) {
	if s == "0" {
		return 0, nil
	}
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		if err == nil {
			return time.Duration(n) * 24 * time.Hour, nil
		}
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, Usagef("%q is not a duration, as in 12h or 90d", s)
	}
	return d, nil
}
