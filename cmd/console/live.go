package console

import (
	"context"
	"math"
	"time"

	"relay/cmd/internal/cli"
	"relay/cmd/internal/serve"
	"relay/db/look"
	"relay/db/look/backlog"
	"relay/db/measure"
	"relay/db/relay"
	"relay/http/console"
)

// live tells a console what only the server knows. It implements console.Live.
type live struct {
	*serve.Running
	store *look.Inspector
}

func (l *live) Online(id relay.MechaNumber) bool { return l.Hub.Online(id) }

func (l *live) Open(id relay.MechaNumber) (sockets, longPolls int) { return l.Hub.Open(id) }

func (l *live) Full(id relay.MechaNumber) (open time.Time, sent int) { return l.Hub.Full(id) }

func (l *live) LastRequest(id relay.MechaNumber) time.Time { return l.DB.LastRequest(id) }

func (l *live) Health() (v console.ServerHealth) {
	counts := l.DB.Measures()
	v.Sockets, v.LongPolls, v.Online = l.Hub.Listeners()
	v.Accepting, v.Writable = l.DB.AcceptsMessages(), l.DB.CheckWritable() == nil && l.DB.Failed() == nil
	v.MinFreeDisk, _ = l.Flags.GetInt64("min-free-disk") // relay serve has it
	v.QueueLength, v.QueueOldest = l.DB.Queue()
	p := l.Index.Progress()
	v.IndexReady, v.IndexMechas, v.IndexLag = p.Ready, p.Entries, -1
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if lag, err := backlog.IndexLag(ctx, l.store, p.Revision, time.Now()); err == nil {
		v.IndexLag = lag
	}
	for _, h := range []struct {
		name string
		of   *measure.Histogram
	}{{console.CommitTime, counts.Commit}, {console.SyncTime, counts.Sync}, {console.QueueTime, counts.Queued},
		{console.PushLag, l.Hub.Measures().Lag}} {
		v.Histograms = append(v.Histograms, histogram(h.name, h.of))
	}
	for _, r := range []struct {
		where string
		of    *measure.Counts
	}{{"http", l.API.Measures().Refused}, {"socket", l.Hub.Measures().Refused}} {
		r.of.Each(func(code string, n int64) {
			if n > 0 {
				v.Refused = append(v.Refused, console.Count{Where: r.where, Code: code, N: n})
			}
		})
	}
	v.Settings = l.settings()
	return v
}

// settings are those that say why messages are refused or go.
func (l *live) settings() (list []console.Setting) {
	for _, name := range []string{"retention", "keep-expired", "max-pending", "min-free-disk", "max-attempts",
		"require-message-signature"} {
		value := l.Flags.Lookup(name).Value
		text := value.String()
		if d, ok := value.(*cli.Days); ok {
			if text = time.Duration(*d).String(); *d == 0 {
				text = "forever"
			}
		}
		list = append(list, console.Setting{Name: "--" + name, Value: text})
	}
	return list
}

// histogram makes a histogram of whole octaves, which is as much as a person can read.
func histogram(name string, of *measure.Histogram) console.Histogram {
	s := of.Snapshot()
	h := console.Histogram{Name: name}
	for i, n := range s.Buckets {
		if bound := time.Duration(math.Exp2(float64(s.Lowest+i)/measure.PerOctave) * float64(time.Second)); i%2 == 0 ||
			len(h.Counts) == 0 {
			h.Bounds, h.Counts = append(h.Bounds, bound), append(h.Counts, n)
		} else {
			h.Bounds[len(h.Bounds)-1] = bound
			h.Counts[len(h.Counts)-1] += n
		}
	}
	h.Counts = append(h.Counts, s.Above)
	return h
}
