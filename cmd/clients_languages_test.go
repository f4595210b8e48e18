package cmd_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	goclient "relay/http/client"
)

// talker is an agent that answers questions and asks the next talker, with one client for both.
// It prints "work ID" for each question that it handles, "answer N ID" for each answer that it
// gets, "stray ID" for an answer that its loop was given, and "done".
type talker struct {
	language, by string
	agent
	out *output
	end func() (code int, log string)
}

// The agents of three languages answer each other's questions through one relay, which is killed and
// started again meanwhile, and which answers get lost. The log of the relay is the judge.
func TestClientsOfAllLanguagesTalk(t *testing.T) {
	notQuick(t)
	notOnWindows(t, "there is no kill -9")
	t.Parallel()
	n, kills := max(questions(t), rounds(t, 24, 2000)), rounds(t, 1, 7)
	scripts, db, flags := mustScript(t), tempDB(t), []string{"--rate-limit", "0", "--max-sockets-per-mecha", "64", "--require-message-signature"}
	keys := issue(t, db, "go^talk", "python^talk", "javascript^talk")
	relay := startProcess(t, db, flags...)
	f := newFront(t, relay)
	talkers := []*talker{
		talkGo(t, f.url, keys[0], keys[1].Address, n),
		talkPython(t, f.url, keys[1], keys[2].Address, n),
		talkJavaScript(t, scripts, f.url, keys[2], keys[0].Address, n),
	}
	began := time.Now()
	answers := func() (all int) {
		for _, a := range talkers {
			all += strings.Count("\n"+a.out.String(), "\nanswer ")
		}
		return all
	}
	for i := range kills {
		eventually(t, 10*patience, "some are answered", func() bool { return answers() >= 3*n*(i+1)/(kills+1) })
		f.loseAnswers(5)
		relay.kill()
		relay = startProcess(t, db, flags...)
		f.leadTo(relay)
	}
	eventually(t, 10*patience, "all are answered", func() bool { return answers() == 3*n })
	took := time.Since(began)
	eventually(t, patience, "all is acknowledged", func() bool {
		for _, a := range talkers {
			if len(relay.history(a.agent, "direction=in&state=pending")) > 0 {
				return false
			}
		}
		return true
	})
	repeated := 0
	for i, a := range talkers {
		if code, log := a.end(); code != 0 {
			t.Errorf("the agent in %s: exit %d\n%s", a.language, code, log)
		}
		before, after := talkers[(i+2)%3], talkers[(i+1)%3]
		repeated += a.judge(t, relay, before, after, n)
	}
	if f.answersLost() == 0 {
		t.Error("no answer of the relay got lost")
	}
	wantWhole(t, db)
	t.Logf("3 agents, %d questions each, all answered in %.1f s over %d kills; %d answers of the relay lost, %d messages pushed more than once", n, took.Seconds(), kills, f.answersLost(), repeated)
}

// judge holds what an agent has printed against the log of the relay: each question of the one
// before it was stored once, handled once, answered once and acknowledged; and each of its own
// questions has one answer, which it got once. It gives how many of a sample came more than once.
func (a *talker) judge(t *testing.T, s *server, before, after *talker, n int) (repeated int) {
	t.Helper()
	worked, got, done := map[string]int{}, map[string]int{}, false
	for line := range strings.Lines(a.out.String()) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case "work":
			worked[rest]++
		case "answer":
			got[rest]++
		case "done":
			done = true
		default:
			t.Errorf("%s: %s", a.language, line)
		}
	}
	questions, answers := map[string]int{}, map[string]int{}
	for i, m := range s.history(a.agent, "direction=in&include=payload") {
		p := parse[struct {
			N, Echo int
			By      string
		}](t, m.Payload)
		switch {
		case m.State != "acknowledged" || m.Ack.Status != "completed":
			t.Errorf("%s: %s is %s, %v", a.language, m.MessageID, m.State, m.Ack)
		case m.InReplyTo == "" && m.From == before.Address && worked[m.MessageID] == 1:
			questions[fmt.Sprint(p.N)]++
		case m.InReplyTo != "" && m.From == after.Address && p.By == after.by && got[fmt.Sprint(p.Echo, " ", m.MessageID)] == 1:
			answers[m.InReplyTo]++
		default:
			t.Errorf("%s: %+v was worked on %d times", a.language, m, worked[m.MessageID])
		}
		if i%20 == 0 {
			pushes := 0
			trace := s.ask(a.agent, "GET", "/api/v1/messages/"+m.MessageID+"/trace", "").want(t, 200)
			for _, step := range parse[struct{ Steps []struct{ Sockets int } }](t, trace).Steps {
				pushes += step.Sockets
			}
			if pushes > 1 {
				repeated++
			}
		}
	}
	for _, m := range s.history(a.agent, "direction=out") { // its answers, and its questions
		if m.InReplyTo == "" && answers[m.MessageID] != 1 {
			t.Errorf("%s: the question %s has %d answers", a.language, m.MessageID, answers[m.MessageID])
		}
	}
	if len(questions) != n || len(worked) != n || len(answers) != n || len(got) != n || !done {
		t.Errorf("%s: %d questions came, %d were handled; %d of its own were answered, %d answers it got; want %d", a.language, len(questions), len(worked), len(answers), len(got), n)
	}
	return repeated
}

func talkGo(t *testing.T, url string, me agent, to string, n int) *talker {
	t.Helper()
	c, err := goclient.New(goclient.Config{URL: url, Key: me.Key})
	if err != nil {
		t.Fatal(err)
	}
	out, log := newOutput(), newOutput()
	ctx, cancel := context.WithCancel(context.Background())
	listened, asked := make(chan error, 1), make(chan error, 30)
	go func() {
		options := goclient.ListenOptions{Jobs: 30, Report: func(e goclient.Event) { fmt.Fprintln(log, e) }}
		listened <- c.Listen(ctx, options, func(ctx context.Context, m *goclient.Message) error {
			question := struct{ N int }{}
			if err := m.Decode(&question); err != nil || m.InReplyTo != "" {
				fmt.Fprintln(out, "stray", m.ID)
				return err
			}
			fmt.Fprintln(out, "work", m.ID)
			return m.Reply(ctx, map[string]any{"echo": question.N, "by": "go"})
		})
	}()
	var next, open atomic.Int64
	open.Store(30)
	for range 30 {
		go func() {
			var err error
			for i := next.Add(1); i <= int64(n) && err == nil; i = next.Add(1) {
				err = ask(ctx, c, to, i, out)
			}
			asked <- err
			if err == nil && open.Add(-1) == 0 {
				fmt.Fprintln(out, "done")
			}
		}()
	}
	t.Cleanup(cancel)
	return &talker{language: "Go", by: "go", agent: me, out: out, end: func() (int, string) {
		cancel()
		errs := []error{<-listened}
		for range 30 {
			errs = append(errs, <-asked)
		}
		errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
		return len(errs), fmt.Sprint(errs, log)
	}}
}

func ask(ctx context.Context, c *goclient.Client, to string, i int64, out io.Writer) error {
	m, err := c.Ask(ctx, to, map[string]int64{"n": i}, goclient.SendOptions{Timeout: 10 * time.Minute})
	if err != nil {
		return err
	}
	answer := struct{ Echo int64 }{}
	if err := m.Decode(&answer); err != nil || answer.Echo != i {
		return fmt.Errorf("the answer to %d is %s: %w", i, m.Payload, err)
	}
	fmt.Fprintln(out, "answer", i, m.ID)
	return nil
}

func talkPython(t *testing.T, url string, me agent, to string, n int) *talker {
	t.Helper()
	p := newPython(t)
	return talkProcess(t, "Python", p.command("agent.py", fmt.Sprint(n)), p.env(url, me, "RELAY_TO="+to), me)
}

func talkJavaScript(t *testing.T, s *scripts, url string, me agent, to string, n int) *talker {
	t.Helper()
	text, err := os.ReadFile("testdata/client/agent.mjs")
	if err != nil {
		t.Fatal(err)
	}
	return talkProcess(t, "JavaScript", s.program(s.write("agent.mjs", string(text)), fmt.Sprint(n)), []string{"RELAY_URL=" + url, "RELAY_KEY=" + me.Key, "RELAY_TO=" + to}, me)
}

func talkProcess(t *testing.T, language string, c *exec.Cmd, env []string, me agent) *talker {
	t.Helper()
	s := launch(t, c, env)
	by, _, _ := strings.Cut(me.Address, "^")
	return &talker{language: language, by: by, agent: me, out: s.stdout, end: func() (int, string) {
		return s.terminate(), filepath.Base(c.Path) + ": " + s.stderr.String()
	}}
}
