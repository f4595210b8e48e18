package show

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"relay/db/relay"
)

// JSON writes v to w, on a line of its own.
func JSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// Indented returns v as JSON on several lines.
func Indented(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(v)
	return b.Bytes(), err
}

// Optional is nil for "", so that JSON has null.
func Optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// OptionalTime is nil for no time, so that JSON has null.
func OptionalTime(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	return Optional(relay.FormatTime(t))
}

// Dash writes "-" for "".
func Dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// TimeOrDash writes a time for people, to the second.
func TimeOrDash(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Format("2006-01-02 15:04:05Z")
}

// Gap writes a length of time for people: 3ms, 1.25s, 2m5s, 3h12m, 4d2h.
func Gap(d time.Duration) string {
	switch {
	case d < 0:
		return "0ms"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(10 * time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%dh", int(d.Hours())/24, int(d.Hours())%24)
}

// Bytes writes a size for people: 512 B, 1.5 KiB, 23.0 MiB.
func Bytes(n int64) string {
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	v, unit := float64(n)/1024, 0
	for ; v >= 1024 && unit < 3; unit++ {
		v /= 1024
	}
	return fmt.Sprintf("%.1f %s", v, [...]string{"KiB", "MiB", "GiB", "TiB"}[unit])
}

// Count writes a number of things: no faults, 1 fault, 2 faults.
func Count(n int, thing string) string {
	switch n {
	case 0:
		return "no " + thing + "s"
	case 1:
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
