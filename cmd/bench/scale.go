package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"time"
)

// scale measures what the number of stored messages costs. It does everything in
// turn on the file with Config.Stored messages, and on a file with few.
func (b *bench) scale(ctx context.Context) error {
	if b.Stored == 0 {
		return nil
	}
	full, err := b.durable(ctx)
	if err != nil {
		return err
	}
	n := min(b.Stored/10, 100_000)
	file := filepath.Join(b.dir, "few.db")
	if err := b.store(ctx, file, n); err != nil {
		return err
	}
	few, err := b.startServer(ctx, file, nil)
	if err != nil {
		return err
	}
	defer few.stop()
	both := []scaled{{few, n, grouped(n) + " stored"}, {full, b.Stored, grouped(b.Stored) + " stored"}}
	if err := b.scaleSends(ctx, both); err != nil {
		return err
	}
	for _, beside := range []int{0, 1} {
		if err := b.scalePages(ctx, both, beside); err != nil {
			return err
		}
	}
	return nil
}

// scaled is a server, how many messages it has, and what its rows are called.
type scaled struct {
	*server
	stored int
	name   string
}

func (b *bench) scaleSends(ctx context.Context, both []scaled) error {
	for _, n := range b.Connections {
		rounds, err := alternate(b, len(both), func(i int, round string) (*sample, error) {
			return b.talkRound(ctx, both[i].server, fmt.Sprintf("sends, %d connections, %s, %s", n, round, both[i].name), n)
		})
		if err != nil {
			return err
		}
		few := loadRow("scale", "sends, "+both[0].name, n, "messages", rounds[0])
		full := loadRow("scale", "sends, "+both[1].name, n, "messages", rounds[1])
		few.Stored, full.Stored = both[0].stored, both[1].stored
		ratio := ratioRow("scale", n, rounds[1], rounds[0], full, few)
		ratio.Case = "ratio"
		b.add(few, full, ratio)
	}
	return nil
}

// scalePages reads the first page of a long mailbox again and again, and the last
// page, while senders send.
func (b *bench) scalePages(ctx context.Context, both []scaled, senders int) error {
	ends := []string{"first", "last"}
	rounds, err := alternate(b, len(both)*len(ends), func(i int, round string) (*sample, error) {
		s, end := both[i/len(ends)], ends[i%len(ends)]
		return b.onePage(ctx, s.server, fmt.Sprintf("%s page, %s, %s", end, round, s.name), end == "last", senders)
	})
	if err != nil {
		return err
	}
	for i, r := range rounds {
		name := fmt.Sprintf("%s page of %d, %s", ends[i%len(ends)], pageSize, both[i/len(ends)].name)
		row := loadRow("scale", name, 1, "records", r)
		if senders > 0 {
			row = latencyRow("scale", name+", beside a sender", 1, 0, r)
		}
		row.Stored = both[i/len(ends)].stored
		b.add(row)
	}
	return nil
}

func (b *bench) onePage(ctx context.Context, s *server, what string, last bool, senders int) (*sample, error) {
	l := b.links(ctx, s)
	defer l.close()
	conns, err := l.dials(1 + senders)
	if err != nil {
		return nil, err
	}
	l.deadline(time.Now().Add(patience))
	reader := s.mechas[len(s.mechas)-1]
	path, err := pageAt(conns[0], reader, last)
	if err != nil {
		return nil, err
	}
	workers := []operation{func() (done, error) {
		began := time.Now()
		page, err := conns[0].do(reader, "GET", path, nil, http.StatusOK)
		return done{units: records(page), also: [2]time.Duration{time.Since(began)}}, err
	}}
	for i := range senders {
		workers = append(workers, b.sender(conns[1+i], s.mechas[:len(s.mechas)-1], i, senders))
	}
	return b.run(ctx, l, what, workers)
}

// pageAt returns the path of the page after a mailbox's first message, or of the
// last page.
func pageAt(c *conn, m *mecha, last bool) (string, error) {
	base := "/api/v1/mecha/" + m.address + "/messages?limit="
	query := base + "1"
	if last {
		query = fmt.Sprintf("%s%d&order=desc", base, pageSize+1)
	}
	page, err := c.do(m, "GET", query, nil, http.StatusOK)
	if err != nil {
		return "", err
	}
	cursor := textField(page[max(len(page)-200, 0):], "next_cursor")
	if cursor == nil {
		return "", errors.New("the mailbox is empty")
	}
	return fmt.Sprintf("%s%d&since_message_id=%s", base, pageSize, cursor), nil
}
