package serve

import (
	"context"
	"fmt"
	"math"
	"time"

	"relay/cmd/internal/cli"
	"relay/db/measure"
	"relay/db/relay"
	"relay/http/console"
)

// liveConsole tells a console what only the server knows. It implements console.Live.
type liveConsole struct {
	in       *Instance
	settings *settings
}

func (l *liveConsole) Online(id relay.MechaNumber) bool { return l.in.hub.Online(id) }

func (l *liveConsole) Open(id relay.MechaNumber) (sockets, longPolls int) { return l.in.hub.Open(id) }

func (l *liveConsole) Full(id relay.MechaNumber) (open time.Time, sent int) { return l.in.hub.Full(id) }

func (l *liveConsole) LastRequest(id relay.MechaNumber) time.Time { return l.in.db.LastRequest(id) }

func (l *liveConsole) Vitals() (v console.Vitals) {
	in, counts := l.in, l.in.db.Measures()
	v.Sockets, v.LongPolls, v.Online = in.hub.Listeners()
	v.Accepting, v.Writable = in.db.AcceptsMessages(), in.db.CheckWritable() == nil && in.db.Failed() == nil
	v.MinFreeDisk = l.settings.MinFreeDisk
	v.QueueLength, v.QueueOldest = in.db.Queue()
	p := in.index.Progress()
	v.IndexReady, v.IndexMechas, v.IndexLag = p.Ready, p.Entries, -1
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if lag, err := in.db.IndexLag(ctx, p.Revision); err == nil {
		v.IndexLag = lag
	}
	for _, h := range []struct {
		name string
		of   *measure.Histogram
	}{{console.CommitTime, counts.Commit}, {console.SyncTime, counts.Sync}, {console.QueueTime, counts.Queued}, {console.PushLag, in.hub.Measures().Lag}} {
		v.Histograms = append(v.Histograms, histogram(h.name, h.of))
	}
	for _, r := range []struct {
		where string
		of    *measure.Counts
	}{{"http", in.api.Measures().Refused}, {"socket", in.hub.Measures().Refused}} {
		r.of.Each(func(code string, n int64) {
			if n > 0 {
				v.Refused = append(v.Refused, console.Count{Where: r.where, Code: code, N: n})
			}
		})
	}
	v.Settings = l.settings.shown()
	return v
}

// shown are the settings that say why messages are refused or go.
func (s *settings) shown() []console.Setting {
	keep := func(d cli.Days) string {
		if d == 0 {
			return "forever"
		}
		return time.Duration(d).String()
	}
	return []console.Setting{
		{Name: "--retention", Value: keep(s.Retention)}, {Name: "--keep-expired", Value: keep(s.KeepExpired)},
		{Name: "--max-pending", Value: fmt.Sprint(s.MaxPending)}, {Name: "--min-free-disk", Value: fmt.Sprint(s.MinFreeDisk)},
		{Name: "--max-attempts", Value: fmt.Sprint(s.MaxAttempts)}, {Name: "--require-message-signature", Value: fmt.Sprint(s.RequireSignature)},
	}
}

// histogram makes a histogram of whole octaves, which is as much as a person can read.
func histogram(name string, of *measure.Histogram) console.Histogram {
	s := of.Snapshot()
	h := console.Histogram{Name: name}
	for i, n := range s.Buckets {
		if bound := time.Duration(math.Exp2(float64(s.Lowest+i)/measure.PerOctave) * float64(time.Second)); i%2 == 0 || len(h.Counts) == 0 {
			h.Bounds, h.Counts = append(h.Bounds, bound), append(h.Counts, n)
		} else {
			h.Bounds[len(h.Bounds)-1] = bound
			h.Counts[len(h.Counts)-1] += n
		}
	}
	h.Counts = append(h.Counts, s.Above)
	return h
}

// consoleURL is the URL that lets a browser in to the server's console; "" if it has none.
func (in *Instance) consoleURL() string {
	if in.console == nil {
		return ""
	}
	return in.console.urls.URL
}
