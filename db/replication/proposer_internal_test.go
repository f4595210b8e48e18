package replication

import (
	"testing"

	"relay/db/file"
	"relay/db/internal/engine"
	"relay/db/internal/sending"
	"relay/db/relay"
)

// Few large envelopes keep further ones waiting as many small ones do.
func TestReplicasProposeNoMoreBytesThanTheyMeet(t *testing.T) {
	t.Parallel()
	p := newProposer(&engine.Store{}, nil, file.LogID{})
	var all engine.Table
	(&sending.Sending{}).Kinds(&all)
	add := func(payload int) {
		j, err := all.JobOf(&relay.SendMessage{Payload: make([]byte, payload)}, ignore)
		if err == nil {
			err = p.queue.Add(0, j.Size(), engine.QueuedJob{Job: &proposal{Job: j}})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	seal := func() *inflight {
		batch, _ := p.take()
		if len(batch) == 0 {
			return nil
		}
		defer p.reuse(batch)
		f, _ := p.seal(batch)
		return f
	}
	var flights []*inflight
	for range 3 {
		add(maxInflightBytes/3 + 1)
		flights = append(flights, seal())
	}
	add(1)
	if f := seal(); f != nil {
		t.Errorf("%d envelopes with %d bytes are under way, and a further one", len(p.inflight), p.inflightBytes)
	}
	p.land(flights[0].counter)
	if seal() == nil {
		t.Error("nothing follows, though the log has brought the first envelope")
	}
	p.land(2)
	p.land(3)
	p.land(4)
	if p.inflightBytes != 0 {
		t.Errorf("%d bytes are under way, though no envelope is", p.inflightBytes)
	}
}
