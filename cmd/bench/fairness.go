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

// An attack is a client with a valid key that uses all that its key allows, and
// what another Mecha, the bystander, does meanwhile.
type attack struct {
	name    string
	what    string   // for people
	clients int      // connections, or sockets
	control int      // of the control load, if it has fewer; 0: as many
	probes  []string // what the bystander does; see probes
	times   int      // a phase takes so many times Config.Duration; 0: once
	files   int      // RLIMIT_NOFILE of the server; 0: as it is
	args    []string // settings of the server; all others have their defaults
	prepare func(*bench, context.Context, *arena) error
	job     func(*arena) job
}

const (
	rivalSockets = 64 // 4 Mechas with 16 sockets each, which is the default limit
	longPhase    = 6  // with the default Config.Duration, longer than the 10 s after which a socket is cut
)

var attacks = []attack{
	{name: "history-24", what: "history pages that match nothing", clients: 24, probes: []string{"read", "send", "ack", "handshake"}, prepare: (*bench).fillRival, job: historyJob},
	{name: "history-300", what: "history pages that match nothing", clients: 300, probes: []string{"read", "send", "ack", "handshake"}, prepare: (*bench).fillRival, job: historyJob},
	{name: "socket-acks", what: "acks of one message over sockets", clients: 16, probes: []string{"read", "send", "ack"}, prepare: (*bench).messageFromRival, job: ackJob},
	{name: "receipts", what: "acks of the bystander's message", clients: 16, probes: []string{"receipt", "send"}, prepare: (*bench).messageFromBystander, job: ackJob},
	{name: "half-frames", what: "half a frame on each socket, 1,024 files", clients: rivalSockets, probes: []string{"split", "slow"}, times: longPhase, files: 1024, prepare: (*bench).fillSlow, job: halfFrameJob},
	{name: "unread", what: "sockets that are not read, 1,024 files", clients: rivalSockets, probes: []string{"split", "slow"}, times: longPhase, files: 1024, prepare: (*bench).fillUnread, job: unreadJob},
	{name: "slow-bodies", what: "slow bodies, 400 connections", clients: 450, control: 300, probes: []string{"read", "send", "handshake"}, args: []string{"--max-connections=400"}, job: slowBodyJob},
	{name: "searches", what: "searches of 64 words", clients: 64, probes: []string{"search", "send"}, prepare: (*bench).importProfiles, job: searchJob},
	{name: "sends", what: "sends beyond the rate limit", clients: 64, probes: []string{"read", "send", "ack"}, job: sendJob},
}

// Attacks returns the names of the attacks of the stage fairness, in their order.
func Attacks() (names []string) {
	for _, a := range attacks {
		names = append(names, a.name)
	}
	return names
}

// fairness measures what a Mecha notices of another that is at its limits. Each
// attack has a relay of its own, with the default settings, and a round of it has
// three phases: the bystander alone, beside the attack, and beside a control load.
// The control load has as many clients as the attack, each with a key of its own,
// which read messages and together take as much CPU as the attack took. So what
// the bystander loses to the attack alone is unfairness, and not lack of CPU.
func (b *bench) fairness(ctx context.Context) error {
	for _, a := range attacks {
		if len(b.Attacks) > 0 && !slices.Contains(b.Attacks, a.name) || a.files > 0 && runtime.GOOS == "windows" {
			continue
		}
		if err := b.withstand(ctx, a); err != nil {
			return fmt.Errorf("%s: %w", a.name, err)
		}
	}
	return nil
}

// withstand measures one attack, and adds its rows.
func (b *bench) withstand(ctx context.Context, a attack) error {
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
	took    time.Duration // of a phase
	people  map[string]*mecha
	rivals  []*mecha // those of the attacker: one, or several where an attack needs several
	crowd   []*mecha // those of the control load
	paths   []string // of a message of each of the crowd
	known   string   // the id of a message from alice to bob
	target  string   // the id of the message that rivals[0] acknowledges
	queries [][]byte
}

const (
	rivals   = 4
	minCrowd = 64   // so that none of them is near the rate limit of a key
	minCores = 0.01 // beside an attack that takes no CPU; 0 would be no bound
)

// arena starts a relay with the settings of an attack, and registers all Mechas
// with the commands of that relay's own program, which may be an older one.
func (b *bench) arena(ctx context.Context, a attack) (*arena, error) {
	b.Progress(a.name+": starting a relay", 0)
	s, err := b.startLimited(ctx, filepath.Join(b.dir, a.name+".db"), a.files, a.args...)
	if err != nil {
		return nil, err
	}
	ar := &arena{server: s, attack: a, took: b.Duration * time.Duration(max(a.times, 1)), people: map[string]*mecha{}}
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

// introduce sends the messages that are read by the bystander and the crowd.
func (b *bench) introduce(ctx context.Context, ar *arena) error {
	l := b.links(ctx, ar.server)
	defer l.close()
	c, err := l.dial()
	if err != nil {
		return err
	}
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
}

// fairLoad is the control load. It takes the CPU time of so many cores at most, the
// server's included.
func (ar *arena) fairLoad(cores float64) job {
	n := ar.clients
	if ar.control > 0 {
		n = ar.control
	}
	j := job{Kind: requestsJob, URL: ar.url, Clients: n, Method: "GET", Status: 200, Server: ar.pid, Cores: max(cores, minCores)}
	for i, m := range ar.crowd {
		j.Actors = append(j.Actors, actor{Address: m.address, Key: m.key, Path: ar.paths[i]})
	}
	return j
}
