package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"relay/db"
	"relay/db/look/browse"
	"relay/db/relay"
)

// Config.Stored messages are written into the file by package db, before its
// server starts. Over HTTP this would take too long.

// The crews of all Mechas in a file that relay bench has made.
const (
	ownCrew     = "bench"
	profileCrew = "directory"
)

// store creates the file if it is missing, and adds messages until it has n.
func (b *bench) store(ctx context.Context, file string, n int) (err error) {
	stored := 0
	if _, err := os.Stat(file); err == nil {
		if stored, err = b.examine(ctx, file); err != nil {
			return err
		}
	}
	if stored >= n {
		return nil
	}
	// As a server opens it: then the nonces are written that a start reads back.
	d, err := db.Open(db.Options{Path: file, Schema: b.Schema, Create: true, Serve: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	return b.storeIn(ctx, d, n-stored)
}

// storeIn stores n messages, spread evenly over Config.StoredOver. Their times
// matter, because a server that starts reads back the nonces of the last minutes.
// One message in ten is for the last Mecha, so that there is a long mailbox. Every
// second message is acknowledged.
func (b *bench) storeIn(ctx context.Context, d *db.DB, n int) error {
	now := time.Now()
	began, apart := now.Add(-b.StoredOver), b.StoredOver/time.Duration(n)
	// Before the messages, because a key takes a position, and positions only grow.
	keys := make([]*relay.Key, b.Mechas)
	err := inParallel(ctx, len(keys), func(i int) error {
		k, err := d.Issue(&relay.IssueKey{At: began, Address: numbered(i, ownCrew), Label: "relay bench",
			ExpiresAt: now.Add(keyLife)})
		keys[i] = k.Key
		return err
	})
	if err != nil {
		return err
	}
	payload := b.payload()
	var done atomic.Int64
	return inParallel(ctx, n, func(i int) error {
		// Messages of one commit have the same Mechas, so that fewer pages change.
		run := i / parallelWrites
		from, to := keys[run%len(keys)], keys[(7*run+1+i%8)%len(keys)]
		if i%10 == 0 {
			to = keys[len(keys)-1]
		}
		at := began.Add(time.Duration(i) * apart)
		m := &relay.SendMessage{At: at, Key: from.Number, To: to.Mecha.Address, Payload: payload, Signed: true,
			Nonce: anyNonce()}
		err := m.Validate()
		var sent relay.Sent
		if err == nil {
			sent, err = d.Send(m)
		}
		if err == nil && i/10%2 == 0 {
			a := &relay.Acknowledge{At: at, Key: to.Number, ID: sent.ID, Status: "completed", ClientTS: relay.FormatTime(at),
				Nonce: anyNonce()}
			_, err = d.Acknowledge(a)
		}
		if k := done.Add(1); k%10_000 == 0 {
			b.Progress(fmt.Sprintf("storing messages, %d of %d", k, n), float64(k)/time.Since(now).Seconds())
		}
		return err
	})
}

func anyNonce() relay.NonceHash { return relay.NonceHash(rand.Int64() | 1) }

func numbered(i int, crew string) relay.Address {
	return relay.Address(fmt.Sprintf("m%06d^%s", i, crew))
}

// examine counts the messages of a file. It refuses a file that relay bench has not
// made, so that no messages are mixed with ours.
func (b *bench) examine(ctx context.Context, file string) (messages int, err error) {
	b.Progress("counting what is stored", 0)
	in, err := browse.Inspect(file)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	s, err := in.Stats(ctx)
	if err != nil {
		return 0, err
	}
	const page = 1000
	for after := relay.Address(""); ; {
		list, err := in.Directory(after, page)
		if err != nil {
			return 0, err
		}
		for _, e := range list {
			if crew := e.Address.Crew(); crew != ownCrew && crew != profileCrew {
				return 0, fmt.Errorf("%s is not a file that relay bench has made: %s is registered there. "+
					"Name one that does not exist (--db), or leave it out", file, e.Address)
			}
			after = e.Address
		}
		if len(list) < page {
			return s.Messages, nil
		}
	}
}

// grouped writes a number with commas.
func grouped(n int) string {
	s := fmt.Sprint(n)
	var b strings.Builder
	for i := range s {
		if i > 0 && (len(s)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
