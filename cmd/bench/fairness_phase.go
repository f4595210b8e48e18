package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"time"

	"relay/cmd/bench/proc"
	"relay/cmd/child"
)

// A contest is one round of an attack.
type contest struct{ alone, attacked, control *phase }

// A phase has the figures of one part of a round: those of the bystander, and the operations of the clients
// that run at the same time.
type phase struct {
	probes   map[string]*probed
	tally    tally
	cpu      proc.Spent    // client is the CPU time of the bystander's clients
	beside   time.Duration // the CPU time of the attacker's process
	took     time.Duration
	restless bool // the relay was still at work for the phase before
}

// probed has the figures of one probe.
type probed struct {
	latency Histogram
	failed  int
	problem error // the first failure
}

// cores returns how many cores the relay and the attacker kept busy.
func (p *phase) cores() float64 {
	return (p.cpu.Server + p.beside).Seconds() / max(p.took.Seconds(), 1e-9)
}

// phase lets the bystander use the relay for a while, alone if job is nil, else while the job runs.
func (b *bench) phase(ctx context.Context, ar *arena, title string, j *job) (*phase, error) {
	b.Progress(title, 0)
	settled, err := b.settle(ctx, ar)
	if err != nil {
		return nil, err
	}
	p := &phase{probes: map[string]*probed{}, restless: !settled}
	var h *helper
	if j != nil {
		if h, err = b.startHelper(ctx, *j); err != nil {
			return nil, err
		}
		defer h.kill()
	}
	if !sleep(time.Now().Add(b.Duration/4), ctx.Done()) { // until the load has its effect
		return nil, ctx.Err()
	}
	l := b.links(ctx, ar.server)
	defer l.close()
	before, beside, began := proc.Read(ar.pid), h.cpu(), time.Now()
	var all sync.WaitGroup
	for _, name := range ar.probes {
		found := &probed{}
		p.probes[name] = found
		all.Go(func() { found.repeat(ctx, probes[name], &line{arena: ar, b: b, links: l}, began.Add(ar.lasting)) })
	}
	all.Wait()
	p.took = time.Since(began)
	p.beside = h.cpu() - beside
	p.cpu = before.Until(proc.Read(ar.pid), p.took)
	p.cpu.Others = max(p.cpu.Others-p.beside.Seconds()/p.took.Seconds()/float64(b.report.CPUs), 0)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if h == nil {
		return p, nil
	}
	p.tally, err = h.finish()
	return p, err
}

// repeat runs a probe until the end of the phase, but once at least: a busy machine may begin later
// than a short phase ends. An operation that is under way at the end still counts: without it the
// slowest operations would be missing.
func (p *probed) repeat(ctx context.Context, of probe, n *line, end time.Time) {
	run := of.begin(n)
	defer n.hangUp()
	for next := time.Now(); ctx.Err() == nil; {
		took, err := run()
		switch {
		case err == nil:
			p.latency.Record(took)
		case ctx.Err() == nil:
			p.failed++
			p.problem = either(p.problem, err)
		}
		if next = next.Add(of.every); next.Before(time.Now()) {
			next = time.Now() // the probe does not make up for lost time
		}
		if !sleep(next, ctx.Done()) || !next.Before(end) {
			return
		}
	}
}

// settle waits until the relay has finished the work that a phase left behind: then it
// answers quickly several times in a row. settle returns false if that takes too long.
func (b *bench) settle(ctx context.Context, ar *arena) (settled bool, err error) {
	const quickly, inARow = 20 * time.Millisecond, 5
	l := b.links(ctx, ar.server)
	defer l.close()
	n := &line{arena: ar, b: b, links: l}
	read := readProbe(n)
	quick := 0
	for end := time.Now().Add(patience); quick < inARow && time.Now().Before(end); {
		took, err := read()
		if quick++; err != nil || took > quickly {
			quick = 0
		}
		if !sleep(time.Now().Add(10*time.Millisecond), ctx.Done()) {
			return false, ctx.Err()
		}
	}
	return quick == inARow, nil
}

// A helper is the process of an attacker, or of a control load.
type helper struct {
	process *exec.Cmd
	stdin   io.WriteCloser
	out     *bufio.Reader
	stderr  bytes.Buffer
}

// startHelper starts the process, and returns when all its clients have begun.
func (b *bench) startHelper(ctx context.Context, j job) (*helper, error) {
	text, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	h := &helper{process: exec.CommandContext(ctx, b.Program, "bench", Attacker)}
	h.process.Env, h.process.Stderr = child.Environ(), &h.stderr
	out, err := h.process.StdoutPipe()
	if err == nil {
		h.stdin, err = h.process.StdinPipe()
	}
	if err == nil {
		err = h.process.Start()
	}
	if err != nil {
		return nil, err
	}
	h.out = bufio.NewReader(out)
	defer h.killWhenHung().Stop()
	if _, err = h.stdin.Write(append(text, '\n')); err == nil {
		_, err = h.out.ReadString('\n')
	}
	if err != nil {
		h.kill()
		return nil, h.explain(err)
	}
	return h, nil
}

func (h *helper) explain(err error) error {
	return fmt.Errorf("the process that attacks has failed: %w %s", err, bytes.TrimSpace(h.stderr.Bytes()))
}

// cpu returns the CPU time of the process, or 0 without one.
func (h *helper) cpu() time.Duration {
	if h == nil {
		return 0
	}
	return proc.CPU(fmt.Sprint(h.process.Process.Pid))
}

// finish ends the attack and returns its tally.
func (h *helper) finish() (t tally, err error) {
	defer h.killWhenHung().Stop()
	err = h.stdin.Close()
	if err == nil {
		err = json.NewDecoder(h.out).Decode(&t)
	}
	if err = errors.Join(err, h.process.Wait()); err != nil {
		err = h.explain(err)
	}
	return t, err
}

// killWhenHung kills the process, unless the timer is stopped before patience ends.
// The caller's Wait then returns.
func (h *helper) killWhenHung() *time.Timer {
	return time.AfterFunc(patience, func() { h.process.Process.Kill() })
}

// kill ends the process, if it has not ended.
func (h *helper) kill() {
	h.process.Process.Kill() // an error means that it has ended
	h.process.Wait()
}
