//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// natsLog writes the messages of NATS to the relay's log: warnings and errors, each text once a
// minute.
type natsLog struct {
	log   *slog.Logger
	fatal atomic.Pointer[error] // why NATS could not start

	mu   sync.Mutex
	said map[string]time.Time // when, by the format of the text
}

const (
	sayAgain = time.Minute
	maxSaid  = 1000
)

func newNATSLog(l *slog.Logger) *natsLog { return &natsLog{log: l, said: map[string]time.Time{}} }

func (l *natsLog) Noticef(string, ...any) {}
func (l *natsLog) Debugf(string, ...any)  {}
func (l *natsLog) Tracef(string, ...any)  {}

func (l *natsLog) Warnf(format string, args ...any) { l.say(slog.LevelWarn, format, args) }

// Errorf logs a warning: to NATS, an unreachable node is an error. This node learns its own
// failures from its requests.
func (l *natsLog) Errorf(format string, args ...any) { l.say(slog.LevelWarn, format, args) }

func (l *natsLog) Fatalf(format string, args ...any) {
	err := fmt.Errorf("the log of the cluster cannot start: "+format, args...)
	l.fatal.CompareAndSwap(nil, &err)
}

// usual has the beginnings of useless texts, which NATS logs at each start or in a healthy cluster.
var usual = []string{"Waiting for routing to be established",
	"JetStream has not established contact with a meta leader", "Metalayer blocking snapshot"}

func (l *natsLog) say(level slog.Level, format string, args []any) {
	now, text := time.Now(), fmt.Sprintf(format, args...)
	if slices.ContainsFunc(usual, func(begin string) bool { return strings.HasPrefix(text, begin) }) {
		return
	}
	if format == "%s" {
		format = text
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.said[format]) < sayAgain {
		return
	}
	if len(l.said) >= maxSaid {
		clear(l.said)
	}
	l.said[format] = now
	l.log.Log(context.Background(), level, "the log of the cluster: "+text)
}
