// Package learning adds to the program that searches learn from completed messages: relay serve
// --learn and --learn-half-life, and relay search forget. Package db/learning counts, search/learned
// ranks by the counts.
package learning

import (
	"embed"
	"log/slog"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"relay/cmd/internal/cli"
	"relay/cmd/internal/serve"
	"relay/db"
	"relay/db/learning"
	"relay/db/relay"
	"relay/http/docs"
	"relay/search"
	"relay/search/learned"
)

//go:embed *.md
var documentation embed.FS

func init() {
	cli.Register(cli.Ring{Name: "learning", Commands: []cli.Command{{Group: "keys", Under: "search",
		Make: func(a *cli.App) *cobra.Command { return (&app{a}).searchForget() }}}})
	serve.Register(newPart)
	docs.Register(docs.Ring{Name: "learning", Files: documentation, Pages: []docs.Page{
		{Name: "privacy", Place: 150, Part: docs.Running, About: "what searches keep and learn, for how long, how to forget"},
	}})
}

type app struct{ *cli.App }

// part is a serve.Part.
type part struct {
	learn bool
	half  cli.Days
}

func newPart() *serve.Part {
	p := &part{half: cli.Days(relay.DefaultHalfLife)}
	return &serve.Part{Flags: p.flags, Check: p.check, Store: p.store, Boost: p.boost}
}

func (p *part) flags(f *pflag.FlagSet) {
	f.BoolVar(&p.learn, "learn", true, "count which Mechas complete the messages of those whose searches found "+
		"them, and rank by these counts; --learn=false stops both: it keeps the counts, "+
		"and drops messages that are not counted yet")
	f.Var(&p.half, "learn-half-life", "`time` in which the counts fade to one half, from 1h")
}

func (p *part) check(*pflag.FlagSet) error {
	if p.half < cli.Days(relay.MinHalfLife) {
		return cli.Usagef("--learn-half-life must be at least 1h; --learn=false turns learning off")
	}
	return nil
}

// store has the store learn.
func (p *part) store(o *db.Options) {
	if p.learn {
		o.Lessons = learning.With(time.Duration(p.half))
	}
}

// boost ranks by what the store learns.
func (p *part) boost(d *db.DB, log *slog.Logger) search.Boost {
	if !p.learn {
		return nil
	}
	return learned.New(roomOf(d), time.Duration(p.half), log)
}

func roomOf(d *db.DB) *learning.Learning { return d.Lessons().(*learning.Learning) }
