package conformance

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"relay/db/look/browse"
	"relay/db/relay"
)

// A letter is a message as the file has it.
type letter struct {
	*relay.Message
	N, Echo *int // of the payload; nil: it has none
}

// A ledger is what the file says of a trial.
type ledger struct {
	questions []letter                     // from the asker to the worker
	answers   map[relay.MessageID][]letter // of the worker, by the question that they name; "": those that name none
}

const manyMessages = 100_000 // more than a trial makes

// read reads the file, whether the relay runs or not.
func (t *trial) read(ctx context.Context) (*ledger, error) {
	i, err := browse.Inspect(t.file)
	if err != nil {
		return nil, err
	}
	defer i.Close()
	list, _, err := i.Messages(ctx, browse.ListQuery{Limit: manyMessages, Oldest: true})
	if err != nil {
		return nil, err
	}
	l := &ledger{answers: map[relay.MessageID][]letter{}}
	for _, m := range list {
		body, err := i.Payload(m.ID)
		if err != nil {
			return nil, err
		}
		one := letter{Message: m}
		_ = json.Unmarshal(body, &one) // another payload has neither field
		switch {
		case m.From == t.asker.address && m.To == t.worker.address:
			l.questions = append(l.questions, one)
		case m.From == t.worker.address:
			l.answers[m.InReplyTo] = append(l.answers[m.InReplyTo], one)
		}
	}
	return l, nil
}

// untilAcknowledged waits until the worker has acknowledged all questions, or the time is up.
func (t *trial) untilAcknowledged(ctx context.Context) error {
	for {
		l, err := t.read(context.WithoutCancel(ctx))
		if err != nil {
			return err
		}
		open := slices.ContainsFunc(l.questions, func(q letter) bool { return q.State != relay.Acknowledged })
		if !open || !wait(ctx, 100*time.Millisecond) {
			return nil // judge tells which
		}
	}
}

// judge says what is wrong with what the programs have done.
func (t *trial) check(ctx context.Context) error {
	l, err := t.read(ctx)
	if err != nil {
		return err
	}
	if !t.ends {
		if t.plays(Asker) {
			t.checkQuestions(l)
		}
		if t.plays(Worker) {
			t.checkAnswers(l)
		}
	}
	all := t.front.seen()
	t.why = append(t.why, impatience(all)...)
	t.why = append(t.why, reuse(all)...)
	for _, p := range t.programs {
		t.checkStderr(p)
		if p.role == Asker && !t.ends {
			t.checkLines(p)
		}
	}
	t.grouped()
	return nil
}

// A group is a reason, and the questions to which it applies.
type group struct {
	reason    string
	questions []int
}

// failAt notes a reason for a question. Questions with the same reason share one line.
func (t *trial) failAt(n int, format string, args ...any) {
	reason := fmt.Sprintf(format, args...)
	i := slices.IndexFunc(t.groups, func(g group) bool { return g.reason == reason })
	if i < 0 {
		t.groups, i = append(t.groups, group{reason: reason}), len(t.groups)
	}
	t.groups[i].questions = append(t.groups[i].questions, n)
}

// grouped makes the reasons of the groups lines.
func (t *trial) grouped() {
	const limit = 6
	for _, g := range t.groups {
		var list []string
		for _, n := range g.questions[:min(limit, len(g.questions))] {
			list = append(list, strconv.Itoa(n))
		}
		line := g.reason + ": question " + strings.Join(list, ", ")
		if more := len(g.questions) - limit; more > 0 {
			line += fmt.Sprintf(" and %d more", more)
		}
		t.why = append(t.why, line)
	}
	t.groups = nil
}

// judgeQuestions wants each question once.
func (t *trial) checkQuestions(l *ledger) {
	times := map[int]int{}
	for _, q := range l.questions {
		if q.N == nil {
			t.failf("the asker sent a message (%s) that is not a question", q.ID)
			continue
		}
		times[*q.N]++
	}
	for n := 1; n <= t.questions; n++ {
		switch times[n] {
		case 0:
			t.failAt(n, "not sent")
		case 1:
		default:
			t.failAt(n, "sent %d times", times[n])
		}
		delete(times, n)
	}
	for _, n := range slices.Sorted(maps.Keys(times)) {
		t.failAt(n, "sent, and not wanted")
	}
}

// judgeAnswers wants each question answered once, and acknowledged after that.
func (t *trial) checkAnswers(l *ledger) {
	if n := len(l.answers[""]); n > 0 {
		t.failf("the worker sent %d messages without in_reply_to", n)
	}
	for _, q := range l.questions {
		if q.N == nil {
			continue
		}
		answers := l.answers[q.ID]
		if len(answers) != 1 {
			t.failAt(*q.N, "answered %d times", len(answers))
		}
		for _, a := range answers {
			switch {
			case a.Echo == nil || *a.Echo != *q.N:
				t.failAt(*q.N, "answered with another payload than {\"echo\": n}")
			case a.Conversation != q.Conversation:
				t.failAt(*q.N, "answered in another conversation")
			case a.To != q.From:
				t.failAt(*q.N, "answered to %s", a.To)
			}
		}
		switch {
		case q.State != relay.Acknowledged || q.Ack == nil:
			t.failAt(*q.N, "not acknowledged")
		case q.Ack.Status != "completed":
			t.failAt(*q.N, "acknowledged as %s, not as completed", relay.Visible(q.Ack.Status))
		case len(answers) > 0 && q.AcknowledgedAt.Before(answers[0].CreatedAt):
			t.failAt(*q.N, "acknowledged before it was answered")
		}
	}
}

// judgeExit wants an asker that is content.
func (t *trial) checkExit(p *program) {
	if p.code() != 0 {
		t.failf("the %s ended with exit code %d: %s", p.role, p.code(), t.lastLine(p))
	}
}

// selfEnd is within which a program must end whose key is revoked.
const selfEnd = 20 * time.Second

// checkEnd checks that a program exits on its own, and with which code.
func (t *trial) checkEnd(ctx context.Context, p *program, code relay.Code) {
	if !p.within(ctx, selfEnd) {
		t.failf("the %s did not exit on its own within %v", p.role, min(selfEnd, t.config.Timeout))
		return
	}
	if p.code() != 1 {
		t.failf("the %s ended with exit code %d, not 1", p.role, p.code())
	}
	if !strings.Contains(p.err.text(), string(code)) {
		t.failf("the stderr of the %s has no %s", p.role, code)
	}
}

// judgeLines wants each number on a line of its own, once the answer was there.
func (t *trial) checkLines(p *program) {
	times := map[int]int{}
	for _, l := range p.out.read() {
		n, err := strconv.Atoi(strings.TrimSpace(l.text))
		if err != nil || n < 1 || n > t.questions {
			t.failf("the asker printed a line that is not the number of a question")
			return
		}
		times[n]++
		if at, ok := t.answers.Load(n); t.strangers && (!ok || l.at.Before(at.(time.Time))) {
			t.failAt(n, "printed before the worker had answered")
		}
	}
	for n := 1; n <= t.questions; n++ {
		if times[n] != 1 {
			t.failAt(n, "printed %d times", times[n])
		}
	}
}

// payload is what a payload looks like in the output of a program: as JSON, as the text of
// an object in another language, or in Base64.
var payload = regexp.MustCompile(`[{\[]\s*["']?(n|echo)["']?\s*[:=]\s*\d|` +
	base64.StdEncoding.EncodeToString([]byte(`{"n":`))[:6] + `|` +
	base64.StdEncoding.EncodeToString([]byte(`{"echo":`))[:9])

// judgeStderr wants no secrets there, and nothing that others wrote.
func (t *trial) checkStderr(p *program) {
	text := p.err.text()
	for _, m := range []mecha{t.asker, t.worker} {
		if strings.Contains(text, m.key) {
			t.failf("the stderr of the %s has the key", p.role)
		}
	}
	if payload.MatchString(text) {
		t.failf("the stderr of the %s has a payload: %s", p.role, shorten(payload.FindString(text)))
	}
}

// lastLine returns the end of what a program has said on stderr, without its key.
func (t *trial) lastLine(p *program) string {
	all := p.err.read()
	for i := len(all) - 1; i >= 0; i-- {
		if s := strings.TrimSpace(all[i].text); s != "" {
			return shorten(strings.NewReplacer(t.asker.key, "(key)", t.worker.key, "(key)").Replace(s))
		}
	}
	return "it said nothing on stderr"
}

func shorten(s string) string {
	const limit = 120
	if runes := []rune(s); len(runes) > limit {
		s = string(runes[:limit]) + "…"
	}
	return relay.Visible(fmt.Sprintf("%q", s))
}
