package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"relay/cmd/bench/proc"
	"relay/db/relay"
	"relay/http/client"
)

// Attacker is the command below bench that attacks a relay. It runs in a process of
// its own: so its cost can be measured, and it does not delay the bystander's clients.
const Attacker = "attacker"

// A job is the work of an attacker, whose keys are valid. Its clients work side by
// side. A client that sends requests has one under way, and sends the next at once.
// After a refusal it pauses: refusals gain an attacker nothing, and would only take
// the CPU.
type job struct {
	Kind    string
	URL     string
	Clients int
	Actors  []actor // a client acts as each of them in turn
	Method  string
	Status  int      // of an answer that counts as accepted
	Bodies  []string // used in turn; none: requests have no body
	Message string   // the id of the message that is acknowledged
	Query   string   // of the handshakes

	Rate   float64 // requests a second in all, at most; 0: as many as there can be
	Server int     // the id of the relay's process
	Cores  float64 // how many cores the relay and this process may keep busy together; 0: no bound
}

// An actor is a Mecha for which an attacker has the key.
type actor struct{ Address, Key, Path string }

// The kinds of jobs.
const (
	requestsKind   = "requests"
	acksKind       = "acks"
	halfFramesKind = "half frames"
	unreadKind     = "unread sockets"
	slowBodiesKind = "slow bodies"
)

// A tally counts what an attacker did before it was told to stop.
type tally struct {
	Begun             int64 // requests or frames that were sent, or sockets that were opened
	Accepted, Refused int64 // of these; the others had no answer yet
	Broken            int64 // connections
	Seconds           float64
	Problem           string // the first refusal or fault
}

func (t *tally) perSecond(n int64) float64 { return float64(n) / max(t.Seconds, 1e-9) }

// attacker is a job under way.
type attacker struct {
	job
	ctx      context.Context
	links    *links
	begun    atomic.Int64
	accepted atomic.Int64
	refused  atomic.Int64
	broken   atomic.Int64
	problem  atomic.Pointer[string]
	gate     sync.RWMutex // locked while the CPU time is used up
	ready    sync.WaitGroup
}

// Attack reads a job from in, and works on it until in ends. It writes a line when
// all its clients have begun, and its tally at the end.
func Attack(ctx context.Context, in io.Reader, out io.Writer) error {
	runtime.GOMAXPROCS(1) // it takes one core at most: the others are for the relay and the bystander
	d := json.NewDecoder(in)
	a := &attacker{}
	if err := d.Decode(&a.job); err != nil {
		return err
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	a.ctx, a.links = ctx, (&bench{}).links(ctx, &server{url: a.URL})
	work := map[string]func(int){requestsKind: a.request, acksKind: a.acknowledge, halfFramesKind: a.hold,
		unreadKind: a.hold, slowBodiesKind: a.dribble}[a.Kind]
	if work == nil {
		return fmt.Errorf("there is no job %q", a.Kind)
	}
	var all sync.WaitGroup
	if a.Cores > 0 {
		all.Go(a.spare)
	}
	a.ready.Add(a.Clients)
	for i := range a.Clients {
		all.Go(func() { work(i) })
	}
	a.ready.Wait()
	began := time.Now()
	if _, err := fmt.Fprintln(out, "ready"); err != nil {
		return err
	}
	io.Copy(io.Discard, io.MultiReader(d.Buffered(), in)) // until the bench has seen enough
	t := tally{Begun: a.begun.Load(), Accepted: a.accepted.Load(), Refused: a.refused.Load(), Broken: a.broken.Load(),
		Seconds: time.Since(began).Seconds()}
	if p := a.problem.Load(); p != nil {
		t.Problem = *p
	}
	end()
	a.links.close()
	all.Wait()
	return json.NewEncoder(out).Encode(t)
}

// spare closes the gate while the relay and this process have taken more CPU time
// than the job allows.
func (a *attacker) spare() {
	begun := time.Now()
	spent := func() time.Duration { return proc.CPU(strconv.Itoa(a.Server)) + proc.CPU("self") }
	before := spent()
	for closed := false; ; {
		open := sleep(time.Now().Add(5*time.Millisecond), a.ctx.Done())
		over := open && (spent()-before).Seconds() > a.Cores*time.Since(begun).Seconds()
		switch {
		case over && !closed:
			a.gate.Lock()
		case !over && closed:
			a.gate.Unlock()
		}
		closed = over
		if !open {
			return
		}
	}
}

// fail counts a refusal or a broken connection, and pauses: all clients together
// fail at most 2,000 times a second.
func (a *attacker) fail(err error) {
	if a.ctx.Err() != nil {
		return
	}
	text := err.Error()
	a.problem.CompareAndSwap(nil, &text)
	if isRefusal(err) {
		a.refused.Add(1)
	} else {
		a.broken.Add(1)
	}
	sleep(time.Now().Add(time.Duration(a.Clients)*500*time.Microsecond), a.ctx.Done())
}

func isRefusal(err error) bool {
	var r *client.Refusal
	return errors.As(err, &r)
}

func isRateLimited(err error) bool {
	var r *client.Refusal
	return errors.As(err, &r) && r.Code == relay.RateLimited
}

// connected calls f again and again with one connection. After an error other than a
// plain refusal it opens another. The client has begun once it has tried to connect.
func (a *attacker) connected(f func(c *conn) error) {
	begun := sync.OnceFunc(a.ready.Done)
	defer begun()
	for a.ctx.Err() == nil {
		c, err := a.links.dial()
		begun()
		for err == nil {
			a.gate.RLock()
			a.begun.Add(1)
			err = f(c)
			a.gate.RUnlock()
			if _, keeps := err.(*client.Refusal); keeps {
				a.fail(err)
				err = nil
			}
			if a.ctx.Err() != nil {
				break
			}
		}
		if c != nil {
			c.close()
		}
		if err != nil {
			a.fail(err)
		}
	}
}

// request sends requests, one after the other.
func (a *attacker) request(i int) {
	mechas := make([]*mecha, len(a.Actors))
	for k, m := range a.Actors {
		mechas[k] = &mecha{m.Address, m.Key}
	}
	n, next := i, time.Now()
	a.connected(func(c *conn) error {
		if a.Rate > 0 {
			if !sleep(next, a.ctx.Done()) {
				return nil
			}
			next = next.Add(time.Duration(float64(a.Clients) / a.Rate * float64(time.Second)))
		}
		n++
		var body []byte
		if len(a.Bodies) > 0 {
			body = []byte(a.Bodies[n%len(a.Bodies)])
		}
		who := n % len(mechas)
		_, err := c.do(mechas[who], a.Method, a.Actors[who].Path, body, a.Status)
		if err == nil {
			a.accepted.Add(1)
		}
		return err
	})
}

// dribble sends requests whose bodies arrive so slowly that they never end.
func (a *attacker) dribble(i int) {
	who := a.Actors[i%len(a.Actors)]
	a.connected(func(c *conn) error {
		signer, err := client.NewSigner(who.Key, "")
		if err != nil {
			return err
		}
		head := fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Length: 1000\r\n", sendPath, c.host)
		if _, err := c.net.Write(append(signer.Append(head, nil), "\r\n{"...)); err != nil {
			return err
		}
		answered := make(chan error, 1)
		go func() {
			status, body, err := c.answer()
			if err == nil {
				err = refused(status, body)
			}
			c.close()
			answered <- err
		}()
		for {
			select {
			case <-a.ctx.Done():
				c.close()
			case <-time.After(time.Second):
				if _, err := c.net.Write([]byte{' '}); err == nil {
					continue
				}
			case err := <-answered:
				return fmt.Errorf("the connection has ended: %w", err)
			}
			return fmt.Errorf("the connection has ended: %w", <-answered)
		}
	})
}
