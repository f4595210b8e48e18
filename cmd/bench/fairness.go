package bench

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// An attack is one way to use all that a valid key allows. Another Mecha, the
// bystander, uses the relay meanwhile.
type attack struct {
	name    string
	what    string   // a description for people
	clients int      // connections, or sockets
	control int      // clients of the control load; 0: as many as the attack has
	probes  []string // the work of the bystander: keys of the map probes
	times   int      // how many times Config.Duration a phase takes; 0: once
	files   int      // RLIMIT_NOFILE of the server; 0: as it is
	args    []string // flags of the server; all other settings have their defaults
	prepare func(*bench, context.Context, *arena) error
	job     func(*arena) job
}

const (
	rivalSockets = 64 // 4 Mechas with 16 sockets each, which is the default limit
	longPhase    = 6  // with the default Config.Duration, longer than the 10 s after which a socket is cut
)

var attacks = []attack{
	{name: "history-24", what: "history pages that match nothing", clients: 24,
		probes: []string{"read", "send", "ack", "handshake"}, prepare: (*bench).fillRival, job: historyJob},
	{name: "history-300", what: "history pages that match nothing", clients: 300,
		probes: []string{"read", "send", "ack", "handshake"}, prepare: (*bench).fillRival, job: historyJob},
	{name: "socket-acks", what: "acks of one message over sockets", clients: 16, probes: []string{"read", "send", "ack"},
		prepare: (*bench).messageFromRival, job: ackJob},
	{name: "receipts", what: "acks of the bystander's message", clients: 16, probes: []string{"receipt", "send"},
		prepare: (*bench).messageFromBystander, job: ackJob},
	{name: "half-frames", what: "half a frame on each socket, 1,024 files", clients: rivalSockets,
		probes: []string{"split", "slow"}, times: longPhase, files: 1024, prepare: (*bench).fillSlow, job: halfFrameJob},
	{name: "unread", what: "sockets that are not read, 1,024 files", clients: rivalSockets,
		probes: []string{"split", "slow"}, times: longPhase, files: 1024, prepare: (*bench).fillUnread, job: unreadJob},
	{name: "slow-bodies", what: "slow bodies, 400 connections", clients: 450, control: 300,
		probes: []string{"read", "send", "handshake"}, args: []string{"--max-connections=400"}, job: slowBodyJob},
	{name: "searches", what: "searches of 64 words", clients: 64, probes: []string{"search", "send"},
		prepare: (*bench).importProfiles, job: searchJob},
	{name: "sends", what: "sends beyond the rate limit", clients: 64,
		probes: []string{"read", "send", "ack"}, job: sendJob},
}

// Attacks returns the names of the attacks of the stage fairness, in their order.
func Attacks() (names []string) {
	for _, a := range attacks {
		names = append(names, a.name)
	}
	return names
}

// fairness measures what a Mecha notices of another that is at its limits. Each attack has a relay of its own,
// with the default settings, and a round of it has three phases: the bystander alone, under attack, and under a
// control load. The control load has as many clients as the attack, each with a key of its own, which read
// messages and together take as much CPU as the attack took. If the attack costs the bystander more than the
// control load does, the relay is unfair, and not for a lack of CPU.
func (b *bench) fairness(ctx context.Context) error {
	for _, a := range attacks {
		if len(b.Attacks) > 0 && !slices.Contains(b.Attacks, a.name) || a.files > 0 && runtime.GOOS == "windows" {
			continue
		}
		if err := b.measureAttack(ctx, a); err != nil {
			return fmt.Errorf("%s: %w", a.name, err)
		}
	}
	return nil
}

// measureAttack measures one attack, and adds its rows.
func (b *bench) measureAttack(ctx context.Context, a attack) error {
	ar, err := b.arena(ctx, a)
	if err != nil {
		return err
	}
	defer ar.stop()
	if a.prepare != nil {
		b.Progress(a.name+": preparing", 0)
		if err := a.prepare(b, ctx, ar); err != nil {
			return err
		}
	}
	var rounds []*contest
	for round := range b.Repeats {
		c := &contest{}
		title := func(phase string) string {
			return fmt.Sprintf("%s, round %d/%d, %s", a.name, round+1, b.Repeats, phase)
		}
		if c.alone, err = b.phase(ctx, ar, title("the bystander alone"), nil); err != nil {
			return err
		}
		attacking := a.job(ar)
		attacking.URL, attacking.Clients = ar.url, a.clients
		if c.attacked, err = b.phase(ctx, ar, title("attacked"), &attacking); err != nil {
			return err
		}
		control := ar.fairLoad(c.attacked.cores())
		if c.control, err = b.phase(ctx, ar, title("beside a control load"), &control); err != nil {
			return err
		}
		rounds = append(rounds, c)
	}
	b.report.Fairness = append(b.report.Fairness, fairRows(a, rounds)...)
	return nil
}

// An arena is the relay of one attack, and the Mechas in it.
type arena struct {
	*server
	attack
	lasting time.Duration     // of a phase
	people  map[string]*mecha // of the bystander, by name
	rivals  []*mecha          // of the attacker
	crowd   []*mecha          // of the control load
	paths   []string          // for each of the crowd, of a message to itself
	known   string            // the id of a message from alice to bob
	target  string            // the id of the message that rivals[0] acknowledges
	queries [][]byte          // the bodies of the attacker's searches
}

const (
	rivals   = 4
	minCrowd = 64   // so many that none comes near the rate limit of its key
	minCores = 0.01 // of the control load, if the attack took no CPU; 0 would be no bound
)

// arena starts a relay with the settings of an attack, and registers all Mechas
// with the commands of that relay's own program, which may be an older one.
func (b *bench) arena(ctx context.Context, a attack) (*arena, error) {
	b.Progress(a.name+": starting a relay", 0)
	s, err := b.startLimited(ctx, filepath.Join(b.dir, a.name+".db"), a.files, a.args...)
	if err != nil {
		return nil, err
	}
	ar := &arena{server: s, attack: a, lasting: b.Duration * time.Duration(max(a.times, 1)), people: map[string]*mecha{}}
	names := []string{"alice^fair", "bob^fair", "carol^fair", "dave^fair", "erin^fair"}
	for i := range rivals {
		names = append(names, fmt.Sprintf("rival%d^rivals", i))
	}
	for i := range max(a.clients, minCrowd) {
		names = append(names, fmt.Sprintf("member%03d^crowd", i))
	}
	all, err := b.issueByCommand(ctx, s, names)
	if err != nil {
		return nil, err
	}
	for _, m := range all {
		switch name, crew, _ := strings.Cut(m.address, "^"); crew {
		case "fair":
			ar.people[name] = m
		case "rivals":
			ar.rivals = append(ar.rivals, m)
		default:
			ar.crowd = append(ar.crowd, m)
		}
	}
	return ar, b.introduce(ctx, ar)
}

// introduce sends the messages that the bystander and the crowd read.
func (b *bench) introduce(ctx context.Context, ar *arena) error {
	return b.connect(ctx, ar.server, func(c *conn) (err error) {
		if ar.known, err = sendOne(c, ar.people["alice"], ar.people["bob"], b.payload()); err != nil {
			return err
		}
		for _, m := range ar.crowd {
			id, err := sendOne(c, m, m, []byte(`{}`))
			if err != nil {
				return err
			}
			ar.paths = append(ar.paths, sendPath+"/"+id)
		}
		return nil
	})
}

// fairLoad returns the job of the control load. Together with the server it keeps at
// most so many cores busy.
func (ar *arena) fairLoad(cores float64) job {
	n := ar.clients
	if ar.control > 0 {
		n = ar.control
	}
	j := job{Kind: requestsKind, URL: ar.url, Clients: n, Method: "GET", Status: 200, Server: ar.pid,
		Cores: max(cores, minCores)}
	for i, m := range ar.crowd {
		j.Actors = append(j.Actors, actor{Address: m.address, Key: m.key, Path: ar.paths[i]})
	}
	return j
}
