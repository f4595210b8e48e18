package cli

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"relay/cmd/internal/show"
)

// Logger makes the log of a command that runs for long, in a format and of a level that CheckLog has passed.
// end writes the counts of repeated lines that have not been written. After it, the log still works but no
// longer counts.
func (a *App) Logger(format, level string) (log *slog.Logger, end func()) {
	var least slog.Level
	_ = least.UnmarshalText([]byte(level)) // CheckLog has read it; "" stands for info
	o := &slog.HandlerOptions{Level: least}
	var h slog.Handler = slog.NewTextHandler(a.Stderr, o)
	if format == "json" || format != "text" && !show.OnScreen(a.Stderr) {
		o.ReplaceAttr = readable
		h = slog.NewJSONHandler(a.Stderr, o)
	}
	r := &repeats{kinds: map[string]*repeated{}, ofMessage: map[string]int{}}
	return slog.New(repeatHandler{h, r}), r.end
}

// readable writes a value in JSON as in text: slog would write a duration as a number of nanoseconds, and an
// address as the fields of its type.
func readable(_ []string, a slog.Attr) slog.Attr {
	switch v := a.Value; v.Kind() {
	case slog.KindDuration:
		a.Value = slog.StringValue(v.Duration().String())
	case slog.KindAny:
		if addr, is := v.Any().(net.Addr); is {
			a.Value = slog.StringValue(addr.String())
		}
	}
	return a
}

// CheckLog refuses formats and levels that the log does not have.
func CheckLog(format, level string) error {
	if !slices.Contains(LogFormats, format) {
		return Usagef("--log-format must be %s", strings.Join(LogFormats, ", "))
	}
	if !slices.Contains(LogLevels, level) {
		return Usagef("--log-level must be %s", strings.Join(LogLevels, ", "))
	}
	return nil
}

// LogFormats and LogLevels are the values of --log-format and --log-level.
var (
	LogFormats = []string{"auto", "text", "json"}
	LogLevels  = []string{"debug", "info", "warn", "error"}
)

const (
	repeatEvery = time.Minute
	maxKinds    = 10 // faults with the same message that are distinguished
)

// repeats counts warnings and errors that repeat. The first of a kind is logged at once. While others of its
// kind follow, one line a minute has their number. So a fault of every request cannot fill the disk with log
// lines. It is safe for concurrent use.
type repeats struct {
	mu        sync.Mutex
	kinds     map[string]*repeated
	ofMessage map[string]int // how many kinds have this message
	ended     bool
}

// repeated is a warning or an error that was logged less than a minute ago.
type repeated struct {
	to    slog.Handler
	last  slog.Record
	count int // since the latest line
	timer *time.Timer
}

// repeatHandler is a slog.Handler that leaves out the records that repeats counts.
type repeatHandler struct {
	slog.Handler
	repeats *repeats
}

func (h repeatHandler) WithAttrs(a []slog.Attr) slog.Handler {
	return repeatHandler{h.Handler.WithAttrs(a), h.repeats}
}

func (h repeatHandler) WithGroup(name string) slog.Handler {
	return repeatHandler{h.Handler.WithGroup(name), h.repeats}
}

// Always returns a log in which every line appears, even a repeated one. It is for lines that answer a person,
// who would take silence for success.
func Always(log *slog.Logger) *slog.Logger {
	if h, ok := log.Handler().(repeatHandler); ok {
		return slog.New(h.Handler)
	}
	return log
}

func (h repeatHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn && h.repeats.count(h.Handler, r) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// count counts a record that repeats another one. For any other record it returns false.
func (s *repeats) count(to slog.Handler, r slog.Record) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	kind := kindOf(r)
	k := s.kinds[kind]
	if k == nil && s.ofMessage[r.Message] >= maxKinds {
		kind = r.Message // too many to distinguish
		k = s.kinds[kind]
	}
	if k != nil {
		k.to, k.last, k.count = to, r.Clone(), k.count+1
		return true
	}
	s.ofMessage[r.Message]++
	k = &repeated{last: r.Clone()}
	k.timer = time.AfterFunc(repeatEvery, func() { s.minute(kind, k) })
	s.kinds[kind] = k
	return false
}

// minute runs when a minute has passed since the latest line of a kind.
func (s *repeats) minute(kind string, k *repeated) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended:
	case k.count > 0:
		k.tell()
		k.timer.Reset(repeatEvery)
	default:
		delete(s.kinds, kind)
		if s.ofMessage[k.last.Message]--; s.ofMessage[k.last.Message] == 0 {
			delete(s.ofMessage, k.last.Message)
		}
	}
}

// tell logs the latest record with the count.
func (k *repeated) tell() {
	k.last.AddAttrs(slog.Int("repeated", k.count))
	_ = k.to.Handle(context.Background(), k.last) // as slog.Logger does
	k.count = 0
}

func (s *repeats) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for _, k := range s.kinds {
		k.timer.Stop()
		if k.count > 0 {
			k.tell()
		}
	}
}

// kindOf returns the part of a record that is the same when it repeats: the message, and
// the attributes that name the fault.
func kindOf(r slog.Record) string {
	kind := []string{r.Message}
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "code", "error", "cause", "value", "holder":
			kind = append(kind, a.Value.String())
		}
		return true
	})
	return strings.Join(kind, "\x00")
}
