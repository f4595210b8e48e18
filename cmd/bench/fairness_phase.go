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
)

// A contest is one round of an attack.
type contest struct{ alone, attacked, control *phase }

// A phase is what the bystander met in one part of a round, and what the clients
// beside it did.
type phase struct {
	probes map[string]*probed
	tally  tally
	cpu    spent         // client is the CPU time of the bystander's clients
	beside time.Duration // the CPU time of the attacker's process
	took   time.Duration
}

// probed is what one probe has found.
type probed struct {
	latency Histogram
	failed  int
	problem error // the first failure
}

// cores returns how many cores the relay and the attacker kept busy.
func (p *phase) cores() float64 {
	return (p.cpu.server + p.beside).Seconds() / max(p.took.Seconds(), 1e-9)
}

// phase lets the bystander use the relay for a while, beside a job; nil is none.
func (b *bench) phase(ctx context.Context, ar *arena, title string, j *job) (*phase, error) {
	b.Progress(title, 0)
	if err := b.settle(ctx, ar); err != nil {
		return nil, err
	}
	p := &phase{probes: map[string]*probed{}}
	var h *helper
	if j != nil {
		var err error
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
	before, beside, began := readCPU(ar.pid), h.cpu(), time.Now()
	var all sync.WaitGroup
	for _, name := range ar.probes {
		found := &probed{}
		p.probes[name] = found
		all.Go(func() { found.repeat(ctx, probes[name], &line{arena: ar, b: b, links: l}, began.Add(ar.took)) })
	}
	all.Wait()
	p.took = time.Since(began)
	p.beside = h.cpu() - beside
	p.cpu = between(before, readCPU(ar.pid), p.took)
	p.cpu.others = max(p.cpu.others-p.beside.Seconds()/p.took.Seconds()/float64(b.report.CPUs), 0)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if h == nil {
		return p, nil
	}
	var err error
	p.tally, err = h.finish()
	return p, err
}

// repeat runs a probe until the end of the phase. An operation that is under way
// then still counts: the slowest would be missing otherwise.
func (p *probed) repeat(ctx context.Context, of probe, n *line, end time.Time) {
	run := of.begin(n)
	defer n.hangUp()
	for next := time.Now(); next.Before(end) && ctx.Err() == nil; {
		took, err := run()
		switch {
		case err == nil:
			p.latency.Record(took)
		case ctx.Err() == nil:
			p.failed++
			p.problem = either(p.problem, err)
		}
		if next = next.Add(of.every); next.Before(time.Now()) {
			next = time.Now() // what is late is not made up for
		}
		if !sleep(next, ctx.Done()) {
			return
		}
	}
}

// settle waits until the relay has done what a phase left behind: until it answers
// quickly several times in a row, or patience is over.
func (b *bench) settle(ctx context.Context, ar *arena) error {
	const quickly, inARow = 20 * time.Millisecond, 5
	l := b.links(ctx, ar.server)
	defer l.close()
	n := &line{arena: ar, b: b, links: l}
	read := readProbe(n)
	for quick, end := 0, time.Now().Add(patience); quick < inARow && time.Now().Before(end); {
		took, err := read()
		if quick++; err != nil || took > quickly {
			quick = 0
		}
		if !sleep(time.Now().Add(10*time.Millisecond), ctx.Done()) {
			return ctx.Err()
		}
	}
	return nil
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
	h.process.Env, h.process.Stderr = cleanEnviron(), &h.stderr
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
	hung := time.AfterFunc(patience, func() { h.process.Process.Kill() })
	defer hung.Stop()
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

// cpu returns the CPU time of the process; 0 if there is none.
func (h *helper) cpu() time.Duration {
	if h == nil {
		return 0
	}
	return processCPU(fmt.Sprint(h.process.Process.Pid))
}

// finish ends the attack and returns its tally.
func (h *helper) finish() (t tally, err error) {
	hung := time.AfterFunc(patience, h.kill)
	defer hung.Stop()
	err = h.stdin.Close()
	if err == nil {
		err = json.NewDecoder(h.out).Decode(&t)
	}
	if err = errors.Join(err, h.process.Wait()); err != nil {
		err = h.explain(err)
	}
	return t, err
}

// kill ends the process, if it has not ended.
func (h *helper) kill() {
	h.process.Process.Kill() // an error means that it has ended
	h.process.Wait()
}
