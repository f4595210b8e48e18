package relay

import (
	"errors"
	"time"
)

// maxTimeLen bounds the texts that ParseTime reads, because RFC 3339 sets no limit to
// the digits of a fraction.
const maxTimeLen = 64

var errTime = errors.New("not an RFC 3339 time such as 2006-01-02T15:04:05.000Z")

// ParseTime reads s by RFC 3339 §5.6 and returns the instant in UTC. `t` and `z` may
// be in lower case. Every offset and every fraction is accepted; digits beyond
// nanoseconds are dropped. A second of 60 must be 23:59:60 UTC (RFC 3339 §5.7). It is
// accepted on every day, because we keep no list of leap seconds. It becomes the
// start of the next second, without its fraction, so that it is not later than that
// second.
//
// ParseTime refuses texts that only time.Parse accepts (a comma for the point, an
// hour of one digit, offsets like +24:00 and +05:60), texts over 64 bytes, and
// instants outside the years 0000 to 9999 in UTC, which FormatTime could not write.
// The error says what a time looks like; it may be shown to a client.
//
// ParseTime does not allocate. It is safe for concurrent use.
func ParseTime(s string) (time.Time, error) {
	if len(s) < len("2006-01-02T15:04:05Z") || len(s) > maxTimeLen {
		return time.Time{}, errTime
	}
	if s[4] != '-' || s[7] != '-' || s[10]|0x20 != 't' || s[13] != ':' || s[16] != ':' {
		return time.Time{}, errTime
	}
	century, year := twoDigits(s), twoDigits(s[2:])
	month, day := twoDigits(s[5:]), twoDigits(s[8:])
	hour, minute, second := twoDigits(s[11:]), twoDigits(s[14:]), twoDigits(s[17:])
	nano, zone := timeFraction(s[19:])
	offset, ok := timeOffset(zone)
	year += 100 * century
	if !ok || nano < 0 || century < 0 || year < 100*century ||
		month < 1 || month > 12 || day < 1 || day > daysIn(month, year) ||
		hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 60 {
		return time.Time{}, errTime
	}
	leap := second == 60
	if leap {
		second, nano = 59, 0
	}
	t := time.Date(year, time.Month(month), day, hour, minute-offset, second, nano, time.UTC)
	if leap {
		if t.Hour() != 23 || t.Minute() != 59 {
			return time.Time{}, errTime
		}
		t = t.Add(time.Second)
	}
	if t.Year() < 0 || t.Year() > 9999 {
		return time.Time{}, errTime
	}
	return t, nil
}

// twoDigits returns the number in the first two characters of s, or -1.
func twoDigits(s string) int {
	if len(s) < 2 || s[0] < '0' || s[0] > '9' || s[1] < '0' || s[1] > '9' {
		return -1
	}
	return int(s[0]-'0')*10 + int(s[1]-'0')
}

// timeFraction reads a time-secfrac, which may be absent. It returns its nanoseconds,
// or -1 if it has no digits, and the rest of s.
func timeFraction(s string) (nano int, rest string) {
	if s[0] != '.' {
		return 0, s
	}
	i, unit := 1, 100_000_000
	for ; i < len(s) && '0' <= s[i] && s[i] <= '9'; i++ {
		nano += int(s[i]-'0') * unit
		unit /= 10 // 0 from the tenth digit on
	}
	if i == 1 {
		return -1, s
	}
	return nano, s[i:]
}

// timeOffset reads a time-offset, which must be all of s, and returns its minutes.
func timeOffset(s string) (minutes int, ok bool) {
	if len(s) == 1 {
		return 0, s[0]|0x20 == 'z'
	}
	if len(s) != len("+07:00") || s[0] != '+' && s[0] != '-' || s[3] != ':' {
		return 0, false
	}
	h, m := twoDigits(s[1:]), twoDigits(s[4:])
	if h < 0 || h > 23 || m < 0 || m > 59 {
		return 0, false
	}
	if s[0] == '-' {
		return -(h*60 + m), true
	}
	return h*60 + m, true
}

func daysIn(month, year int) int {
	switch month {
	case 4, 6, 9, 11:
		return 30
	case 2:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	}
	return 31
}

// AppendTime appends t to dst as the relay writes times (PROTOCOL §1): RFC 3339 in
// UTC with `Z` and milliseconds. The rest of the fraction is cut off, not rounded, so
// that the text is never later than t. t must be in the years 0 to 9999.
func AppendTime(dst []byte, t time.Time) []byte {
	t = t.UTC()
	dst = t.AppendFormat(dst, time.RFC3339) // the only layout with a fast path in package time
	ms := t.Nanosecond() / 1_000_000
	return append(dst[:len(dst)-len("Z")], '.',
		byte('0'+ms/100), byte('0'+ms/10%10), byte('0'+ms%10), 'Z')
}

// FormatTime returns the text that AppendTime appends.
func FormatTime(t time.Time) string {
	var buf [len("2006-01-02T15:04:05.000Z")]byte
	return string(AppendTime(buf[:0], t))
}

// UnixMilli converts Unix milliseconds to a time in UTC, and 0 to the zero time.
func UnixMilli(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// MilliOf converts a time to Unix milliseconds, without the rest of the fraction, and the
// zero time to 0.
func MilliOf(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}
