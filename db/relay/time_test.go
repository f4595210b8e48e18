package relay_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"relay/db/relay"
)

func TestParseTime(t *testing.T) {
	for s, want := range map[string]string{
		"2025-11-21T01:05:06Z":                                 "2025-11-21T01:05:06Z",
		"2025-11-21t01:05:06z":                                 "2025-11-21T01:05:06Z",
		"2025-11-21T01:05:06.5Z":                               "2025-11-21T01:05:06.5Z",
		"2025-11-21T01:05:06.123456789Z":                       "2025-11-21T01:05:06.123456789Z",
		"2025-11-21T01:05:06.0000000019999Z":                   "2025-11-21T01:05:06.000000001Z",
		"2025-11-21T01:05:06." + strings.Repeat("9", 43) + "Z": "2025-11-21T01:05:06.999999999Z", // 64 bytes
		"2025-11-21T01:05:06+00:00":                            "2025-11-21T01:05:06Z",
		"2025-11-21T01:05:06-00:00":                            "2025-11-21T01:05:06Z",
		"2025-11-21T01:05:06+05:45":                            "2025-11-20T19:20:06Z",
		"2025-11-21T01:05:06-23:59":                            "2025-11-22T01:04:06Z",
		"2025-12-31T23:59:59.25-23:59":                         "2026-01-01T23:58:59.25Z",
		"2024-02-29T00:00:00Z":                                 "2024-02-29T00:00:00Z",
		"2000-02-29T00:00:00Z":                                 "2000-02-29T00:00:00Z",
		"0000-02-29T00:00:00Z":                                 "0000-02-29T00:00:00Z",
		"0000-01-01T00:00:00Z":                                 "0000-01-01T00:00:00Z",
		"9999-12-31T23:59:59.999999999Z":                       "9999-12-31T23:59:59.999999999Z",
		"1937-01-01T12:00:27.87+00:20":                         "1937-01-01T11:40:27.87Z", // RFC 3339 §5.8
		"1990-12-31T23:59:60Z":                                 "1991-01-01T00:00:00Z",
		"1990-12-31T15:59:60-08:00":                            "1991-01-01T00:00:00Z",
		"1991-01-01T05:44:60.75+05:45":                         "1991-01-01T00:00:00Z",
	} {
		got, err := relay.ParseTime(s)
		if err != nil || got.Format(time.RFC3339Nano) != want || got.Location() != time.UTC {
			t.Errorf("%s: got %v, %v; want %s", s, got, err, want)
		}
	}
}

func TestParseTimeRefuses(t *testing.T) {
	for _, s := range []string{
		"", "now", "1732150000", "2025-11-21", "01:05:06Z", "2025-11-21T01:05Z", "2025-11-21T01Z", "20251121T010506Z", "2025-W47-5T01:05:06Z",
		// Only T and Z, and nothing around.
		"2025-11-21 01:05:06Z", "2025-11-21_01:05:06Z", "2025-11-21T01:05:06", "2025-11-21T01:05:06.5", "2025-11-21T01:05:06 Z", "2025-11-21T01:05:06ZZ",
		"2025-11-21T01:05:06Z ", " 2025-11-21T01:05:06Z", "2025-11-21T01:05:06Z\n", "2025-11-21T01:05:06UTC", "2025-11-21T01:05:06Z+00:00", "2025-11-21\x1401:05:06Z",
		// Separators and digits.
		"2025/11/21T01:05:06Z", "2025-11-21T01.05.06Z", "2025-11-21T01:05.06Z", "2025-11-21T01.05:06Z", "2025-11/21T01:05:06Z", "2025/11-21T01:05:06Z", "2025-11-21T1:05:06Z", "2025-11-21T1:05:06.00Z", "2025-1-21T01:05:06.0Z", "2025-11-21T01:5:06.00Z", "2025-11-21T01:05:6.00Z",
		"+2025-11-21T01:05:06Z", "12025-11-21T01:05:06Z", "-025-11-21T01:05:06Z", "20+5-11-21T01:05:06Z", "2025-+1-21T01:05:06Z", "2025-11-21T01:05:-6Z", "x025-11-21T01:05:06Z", "x099-12-31T23:59:59-23:59", "2025-11-21T01:-5:06Z",
		"20a5-11-21T01:05:06Z", "2025-11-21T 1:05:06Z", "２025-11-21T01:05:06Z",
		// Fractions.
		"2025-11-21T01:05:06,5Z", "2025-11-21T01:05:06.Z", "2025-11-21T01:05:06.+01:00", "2025-11-21T01:05:06.5.5Z", "2025-11-21T01:05:06.5x", "2025-11-21T01:05:06.-5Z", "2025-11-21T01:05:06:5Z",
		"2025-11-21T01:05:06." + strings.Repeat("9", 44) + "Z", // 65 bytes
		// Ranges and the calendar.
		"2025-00-21T01:05:06Z", "2025-13-21T01:05:06Z", "2025-11-00T01:05:06Z", "2025-11-31T01:05:06Z", "2025-12-32T01:05:06Z", "2025-02-29T01:05:06Z", "2024-02-30T01:05:06Z",
		"1900-02-29T01:05:06Z", "2100-02-29T01:05:06Z", "2025-04-31T01:05:06Z", "2025-06-31T01:05:06Z", "2025-09-31T01:05:06Z", "2025-01-32T01:05:06Z",
		"2025-11-21T24:00:00Z", "2025-11-21T01:60:06Z", "2025-11-21T01:05:61Z", "2025-11-21T01:05:99Z",
		// Offsets.
		"2025-11-21T01:05:06+24:00", "2025-11-21T01:05:06-24:00", "2025-11-21T01:05:06+05:60", "2025-11-21T01:05:06+0545", "2025-11-21T01:05:06+05", "2025-11-21T01:05:06+5:45",
		"2025-11-21T01:05:06+05:45Z", "2025-11-21T01:05:06+", "2025-11-21T01:05:06+05-45", "2025-11-21T01:05:06+05:4", "2025-11-21T01:05:06*05:45", "2025-11-21T01:05:06+05:x0", "2025-11-21T01:05:06+x5:00", "2025-11-21T01:05:06+-5:45",
		"2025-11-21T01:05:06\u221205:00",
		// The second 60 is 23:59:60 UTC.
		"1990-12-31T23:58:60Z", "1990-12-31T22:59:60Z", "1990-12-31T23:59:60+01:00", "1990-12-31T15:59:60-07:00", "1990-12-31T23:59:61Z",
		// Outside of the years that RFC 3339 can write.
		"0000-01-01T00:00:00+00:01", "9999-12-31T23:59:59-00:01", "9999-12-31T23:59:60Z",
	} {
		if got, err := relay.ParseTime(s); err == nil {
			t.Errorf("%q was accepted as %v", s, got)
		}
	}
}

func TestFormatTime(t *testing.T) {
	berlin := time.FixedZone("", 3600)
	for want, at := range map[string]time.Time{
		"2025-11-21T01:05:06.000Z": time.Date(2025, 11, 21, 1, 5, 6, 0, time.UTC),
		"2025-11-21T00:05:06.999Z": time.Date(2025, 11, 21, 1, 5, 6, 999_999_999, berlin),
		"2025-11-21T01:05:06.070Z": time.Date(2025, 11, 21, 1, 5, 6, 70_500_000, time.UTC),
		"1969-12-31T23:59:59.999Z": time.Unix(0, -1),
		"0000-01-01T00:00:00.000Z": time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC),
		"9999-12-31T23:59:59.123Z": time.Date(9999, 12, 31, 23, 59, 59, 123_999_999, time.UTC),
	} {
		if got := relay.FormatTime(at); got != want {
			t.Errorf("FormatTime: got %s, want %s", got, want)
		}
		if got := string(relay.AppendTime([]byte("at "), at)); got != "at "+want {
			t.Errorf("AppendTime: got %s, want %s", got, want)
		}
	}
}

// rfc3339 is the grammar of §5.6, ranges that need no calendar included.
var rfc3339 = regexp.MustCompile(`^(\d{4}-\d\d-\d\dT\d\d:\d\d:)(\d\d)(?:(\.\d{1,9})\d*)?(Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)$`)

// lenient is what time.Parse takes beyond it: a comma for the point, an hour of
// one digit, offsets of 24 hours or 60 minutes.
var lenient = regexp.MustCompile(`,\d|T\d:|[+-](24:\d\d|\d\d:60)$`)

var longFraction = regexp.MustCompile(`\.\d{10}`)

// referenceTime reads s with time.Parse, after checking all that it lets through.
func referenceTime(s string) (time.Time, bool) {
	m := rfc3339.FindStringSubmatch(strings.NewReplacer("t", "T", "z", "Z").Replace(s))
	if m == nil || len(s) > 64 {
		return time.Time{}, false
	}
	second, fraction := m[2], m[3]
	if second == "60" {
		second, fraction = "59", ""
	}
	t, err := time.Parse(time.RFC3339Nano, m[1]+second+fraction+m[4])
	t = t.UTC()
	if m[2] == "60" {
		if t.Format("15:04:05") != "23:59:59" {
			return t, false
		}
		t = t.Add(time.Second)
	}
	return t, err == nil && t.Year() >= 0 && t.Year() <= 9999
}

func FuzzParseTime(f *testing.F) {
	for _, s := range []string{
		"2025-11-21T01:05:06Z", "2025-11-21t01:05:06.5z", "2025-11-21T01:05:06.1234567899+05:45", "2025-11-21T01:05:06,5Z", "2025-11-21T1:05:06Z", "2024-02-29T00:00:00-23:59",
		"1990-12-31T15:59:60-08:00", "2025-11-21T01:05:06+24:00", "2025-11-21 01:05:06Z", "0000-01-01T00:00:00+00:01", "9999-12-31T23:59:60Z", "2025-11-21T01:05:06+05:60", "1990-12-31T23:59:60.5Z",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := relay.ParseTime(s)
		want, ok := referenceTime(s)
		if (err == nil) != ok || ok && (!got.Equal(want) || got.Location() != time.UTC) {
			t.Fatalf("%q: got %v, %v; want %v, %v", s, got, err, want, ok)
		}
		theirs, theirErr := time.Parse(time.RFC3339Nano, s)
		switch {
		case err == nil && theirErr == nil && !got.Equal(theirs) && !longFraction.MatchString(s):
			t.Fatalf("%q: got %v, time.Parse %v", s, got, theirs)
		case err == nil && theirErr != nil && !strings.ContainsAny(s, "tz") && s[17:19] != "60":
			t.Fatalf("%q: time.Parse says %v", s, theirErr)
		case err != nil && theirErr == nil && len(s) <= 64 && !lenient.MatchString(s):
			if y := theirs.UTC().Year(); 0 <= y && y <= 9999 {
				t.Fatalf("%q: refused without a documented reason", s)
			}
		}
		if err != nil {
			return
		}
		again, err := relay.ParseTime(relay.FormatTime(got))
		if err != nil || !again.Equal(got.Truncate(time.Millisecond)) {
			t.Fatalf("%q: %s reads as %v, %v", s, relay.FormatTime(got), again, err)
		}
	})
}

func BenchmarkParseTime(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := relay.ParseTime("2025-11-21T01:05:06.123+01:00"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendTime(b *testing.B) {
	buf, now := make([]byte, 0, 32), time.Now()
	b.ReportAllocs()
	for b.Loop() {
		buf = relay.AppendTime(buf[:0], now)
	}
}
