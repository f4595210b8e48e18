package db

import (
	"database/sql"
	"strings"
	"sync/atomic"
	"testing"

	"relay/db/relay"
	"relay/db/replication"
)

// startKnowing starts a node again, as by a program that knows the rules up to a version.
func (n *node) startKnowing(rules int64) error {
	n.prepare = func(d *DB) { replicated(d.w).Replica.Knows = rules }
	return n.tryToStart()
}

// Nodes are updated one after the other. They go by the old rules until all know the new ones,
// and change at the same entry. A program that does not know them stops there, having applied
// all before it.
func TestReplicasPutNewRulesInForceTogether(t *testing.T) {
	t.Parallel()
	var common atomic.Int64
	l, a, b := pair(t, func(o *Options) { o.Log = &replication.Following{CommonRules: common.Load} })
	late := newNode(t, l, "late", a.options, nil)
	late.copyOf(a)
	common.Store(1)
	a.keep(true)
	k := a.issue("bob^demo")
	for i, n := range []*node{a, b} {
		late.catchUp()
		late.stop()
		n.stop()
		if err := n.startKnowing(2); err != nil {
			t.Fatal(err)
		}
		a.mustSend(k, 0)
		b.mustSend(k, 0)
		if n.Place().Version != 1 || n.Place().Knows != 2 {
			t.Errorf("after %d nodes: %+v", i+1, n.Place())
		}
		late.start()
	}
	late.catchUp()
	before := late.log.length()
	active := l.waitFor("*relay.Activate")
	common.Store(2)
	<-active
	a.mustSend(k, 0)
	b.mustSend(k, 0)
	late.wantFatal(nil)
	if err := late.fatal; !strings.Contains(err.Error(), "rules 2") || !strings.Contains(err.Error(), "newer relay") {
		t.Errorf("a node of the old program stopped with %v", err)
	}
	if at := late.Place(); at.Applied < before || at.Version != 1 {
		t.Errorf("it is at %+v; before the change were %d entries", at, before)
	}
	late.stop()
	again := newNode(t, l, "again", a.options, func(d *DB) { replicated(d.w).Replica.Knows = 2 }) // with its file, which the failed store holds until the process ends
	again.copyOf(late)
	wantEnd(a, b, again)
	for _, n := range []*node{a, b, again} {
		if at := n.Place(); at.Version != 2 {
			t.Errorf("the rules %d are in force", at.Version)
		}
	}
	if kinds := kindsOfAll(l, replicated(a.w).Propose.Origin); kinds["*relay.Activate"] != 1 {
		t.Errorf("the entries are %v", kinds)
	}
	if err := a.startKnowing(1); err == nil || !strings.Contains(err.Error(), "a newer relay") { // the program of this test is older than the rules
		t.Errorf("a file of newer rules: %v", err)
	}
}

// While the rules in force do not have a kind or a version of a write, no node proposes one.
func TestReplicasDoNotProposeWhatOthersCannotRead(t *testing.T) {
	t.Parallel()
	var common atomic.Int64
	l, a, b := pair(t, func(o *Options) { o.Log = &replication.Following{CommonRules: common.Load} })
	k := a.issue("bob^demo")
	b.catchUp()
	for _, n := range []*node{a, b} { // as if the rules of this program were new
		n.stop()
		f, err := sql.Open("sqlite", n.options.Path)
		if err == nil {
			_, err = f.Exec("UPDATE replica SET version = 0")
			f.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		n.start()
	}
	before := l.length()
	_, err := a.Send(a.message(k, 0))
	a.want(relay.Overloaded, err)
	_, err = b.Issue(&relay.IssueKey{Address: "eve^demo"})
	b.want(relay.Overloaded, err)
	l.wantLength(t, before)
	active := l.waitFor("*relay.Activate")
	common.Store(1)
	b.keep(true)
	<-active
	b.catchUp()
	a.catchUp()
	a.mustSend(k, 0)
	wantEnd(a, b)
	wantMessages(b, 1)
}
