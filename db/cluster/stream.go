//go:build cluster

package cluster

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"relay/db/file"
	"relay/db/replication"
)

// The one stream, the subject of its entries, and the subject on which its leader publishes
// them to the nodes.
const (
	streamName = "relay"
	inSubject  = "relay.log"
	outSubject = "relay.out"
)

const (
	logAge = 24 * time.Hour // older entries are dropped
	// how long the log recognises an envelope; the store proposes it for half a minute at most
	duplicates = 2 * time.Minute
	logIDKey   = "relay_log" // in the metadata of the stream: the id of the log
)

// Each request waits so long for its answer, and is then repeated.
const (
	requestWait = 2 * time.Second
	askAgain    = 250 * time.Millisecond
	waitSilent  = time.Second // a shorter wait is not logged
)

// streamConfig is the configuration of the stream of a log.
func streamConfig(id file.LogID, bytes int64) server.StreamConfig {
	return server.StreamConfig{
		Name: streamName, Subjects: []string{inSubject}, Storage: server.FileStorage, Replicas: Replicas,
		Retention: server.LimitsPolicy, Discard: server.DiscardOld, MaxAge: logAge, MaxBytes: bytes, MaxMsgs: -1,
		MaxMsgsPer: -1, MaxConsumers: -1,
		Duplicates: duplicates, AllowDirect: true, DenyDelete: true, DenyPurge: true,
		RePublish: &server.RePublish{Source: inSubject, Destination: outSubject},
		Metadata:  map[string]string{logIDKey: hex.EncodeToString(id[:])},
	}
}

// ask makes a request of JetStream's interface, and reads its answer. An answer that is an
// error is a *server.ApiError.
func ask(ctx context.Context, c *nats.Conn, subject string, question, answer any) error {
	text, err := json.Marshal(question)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestWait)
	defer cancel()
	m, err := c.RequestWithContext(ctx, subject, text)
	if err != nil {
		return err
	}
	var response server.ApiResponse
	if err := json.Unmarshal(m.Data, &response); err != nil {
		return err
	}
	if response.Error != nil {
		return response.Error
	}
	return json.Unmarshal(m.Data, answer)
}

// streamInfo asks the leader of the stream for its state and configuration.
func (n *Node) streamInfo(ctx context.Context) (*server.StreamInfo, error) {
	var r server.JSApiStreamInfoResponse
	if err := ask(ctx, n.nats.conn, fmt.Sprintf(server.JSApiStreamInfoT, streamName), struct{}{}, &r); err != nil {
		return nil, err
	}
	if r.StreamInfo == nil {
		return nil, errors.New("NATS gave no information of the stream")
	}
	return r.StreamInfo, nil
}

// ready waits until a store is attached and the stream is known to have its log. Errors: ctx has
// ended, or the node cannot use the stream.
func (n *Node) ready(ctx context.Context) error {
	select {
	case <-n.sure:
		return n.unfit
	case <-ctx.Done():
		return ctx.Err()
	}
}

// makeSure waits for the leader of the stream, and compares the stream with the log of the store,
// which is attached. It passes the outcome to ready.
func (n *Node) makeSure() {
	if <-n.decided; !n.isAdmitted() {
		return
	}
	var missing time.Time // since when the stream is known to be missing
	began, saidClock := time.Now(), false
	for {
		err := n.checkStream(n.ctx)
		switch {
		case err == nil && (saidClock || n.waits.Load()):
			n.log.Info("the log of the cluster is reached")
		case err == nil, errors.Is(err, errOtherStream):
		case !isAPIError(err, server.JSStreamNotFoundErr):
			missing = time.Time{}
		case missing.IsZero():
			missing = time.Now()
		case time.Since(missing) > n.doubt:
			err = fmt.Errorf("%w: the cluster has no log, and the file of this node is at entry %d of one",
				errOtherStream, n.store.Place().Applied)
		}
		if err == nil || errors.Is(err, errOtherStream) {
			n.unfit = err
			close(n.sure)
			return
		}
		switch isClock := errors.Is(err, errClock); {
		case time.Since(began) <= waitSilent:
		case !isClock:
			n.sayWaiting(err)
		case !saidClock && n.ctx.Err() == nil:
			saidClock = true
			n.log.Warn(waitingForLog, "error", err)
		}
		if !pause(n.ctx, askAgain) {
			return
		}
	}
}

// errOtherStream says that a node must not use the stream that it found. It is an error of
// Follow after which a copy cannot continue.
var errOtherStream = fmt.Errorf("the stream of the cluster does not fit this node: %w", replication.ErrLogBehind)

// checkStream checks that the stream is the store's log. It makes a missing stream if the
// store is at the beginning of its log.
func (n *Node) checkStream(ctx context.Context) error {
	if err := n.checkClock(); err != nil {
		return err
	}
	at := n.store.Place()
	want := streamConfig(at.Log, n.file.Load().LogBytes)
	info, err := n.streamInfo(ctx)
	if isAPIError(err, server.JSStreamNotFoundErr) && at.Applied == 0 {
		var r server.JSApiStreamCreateResponse
		if err := ask(ctx, n.nats.conn, fmt.Sprintf(server.JSApiStreamCreateT, streamName), want, &r); err != nil {
			return err
		}
		n.log.Info("the log of the cluster is founded", "log", want.Metadata[logIDKey])
		info, err = n.streamInfo(ctx)
	}
	if err != nil {
		return err
	}
	return fits(info.Config, want)
}

// fits compares the parts of a stream's configuration on which promises depend.
func fits(have, want server.StreamConfig) error {
	if have.Metadata[logIDKey] != want.Metadata[logIDKey] {
		return fmt.Errorf("%w: it has the log %s, and the file of this node follows %s",
			errOtherStream, have.Metadata[logIDKey], want.Metadata[logIDKey])
	}
	type promises struct {
		Subjects              string
		Storage               server.StorageType
		Replicas              int
		Retention             server.RetentionPolicy
		Discard               server.DiscardPolicy
		MaxMsgs               int64
		Direct, Delete, Purge bool
		NoAck, Sealed, TTL    bool
		Mode                  server.PersistModeType
		Source, Destination   string
		Duplicates            time.Duration
	}
	of := func(c server.StreamConfig) promises {
		p := promises{fmt.Sprint(c.Subjects), c.Storage, c.Replicas, c.Retention, c.Discard, c.MaxMsgs, c.AllowDirect,
			c.DenyDelete, c.DenyPurge, c.NoAck, c.Sealed, c.AllowMsgTTL, c.PersistMode, "", "", c.Duplicates}
		if c.RePublish != nil {
			p.Source, p.Destination = c.RePublish.Source, c.RePublish.Destination
		}
		return p
	}
	if h, w := of(have), of(want); h != w {
		return fmt.Errorf("%w: it is configured as %+v, and must be %+v", errOtherStream, h, w)
	}
	return nil
}

// pause waits, and reports whether ctx is still alive.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
