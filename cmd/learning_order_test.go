package cmd_test

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"testing"
)

// market is a server on which two Mechas are found by the same words. The text of the first
// one matches better; the second one is whom the others write to.
type market struct {
	*server
	better, other agent
	askers        []agent // of different crews
}

// ranked is what a search says of a hit that does not depend on the time.
type ranked struct {
	MechaID string `json:"mecha_id"`
	Score   float64
	Explain struct {
		Learned   float64
		Exchanges float64
	}
}

func newMarket(t *testing.T) *market {
	t.Helper()
	db := tempDB(t)
	all := issue(t, db, "better^shop", "other^shop", "a^one", "b^two", "c^three", "d^four")
	m := &market{startServer(t, db), all[0], all[1], all[2:]}
	describe := func(a agent, text string) {
		m.ask(a, "PUT", "/api/v1/mecha/"+a.Address+"/profile", fmt.Sprintf(`{"description":%q}`, text)).want(t, http.StatusOK)
	}
	describe(m.better, "Books flights.")
	describe(m.other, "Books flights, hotels, ferries and rental cars for large groups of people.")
	return m
}

// find returns the id and the hits of a search.
func (m *market) find(a agent) (id string, hits []ranked) {
	m.t.Helper()
	var ans answer
	eventually(m.t, patience, "a turn to search", func() bool {
		ans = m.ask(a, "POST", "/api/v1/search", `{"query":"book a flight","explain":true}`, "Prefer", "wait=5")
		return ans.code() != "overloaded" && ans.code() != "rate_limited"
	})
	r := parse[struct {
		ID      string `json:"request_id"`
		Results []ranked
	}](m.t, ans.want(m.t, http.StatusOK))
	return r.ID, r.Results
}

// exchange is a whole one: the asker searches, writes to the second Mecha, and that completes it.
func (m *market) exchange(a agent) {
	m.t.Helper()
	id, _ := m.find(a)
	body := fmt.Sprintf(`{"to":%q,"payload":{},"search_id":%q}`, m.other.Address, id)
	sent := parse[record](m.t, m.ask(a, "POST", "/api/v1/messages", body).want(m.t, http.StatusCreated))
	m.ask(m.other, "POST", "/api/v1/messages/"+sent.MessageID+"/ack", `{"status":"completed","client_ts":"2026-01-01T00:00:00Z"}`).want(m.t, http.StatusOK)
}

// exchangeAll is three exchanges of each asker.
func (m *market) exchangeAll() {
	m.t.Helper()
	for range 3 {
		for _, a := range m.askers {
			m.exchange(a)
		}
	}
}

// mustRank waits until a search finds the two in an order, with so many exchanges of the
// second Mecha, and gives its hits.
func (m *market) mustRank(exchanges float64, order ...agent) (hits []ranked) {
	m.t.Helper()
	ok := func() bool {
		_, hits = m.find(m.askers[0])
		if len(hits) != 2 || hits[0].MechaID != order[0].Address || hits[1].MechaID != order[1].Address {
			return false
		}
		for _, h := range hits {
			of := 0.0
			if h.MechaID == m.other.Address {
				of = exchanges
			}
			if h.Explain.Exchanges != of || h.Explain.Learned > 0 != (of > 0) {
				return false
			}
		}
		return true
	}
	defer func() {
		if m.t.Failed() {
			m.t.Logf("the last answer: %+v", hits)
		}
	}()
	eventually(m.t, patience, fmt.Sprintf("%s comes first, with %v exchanges of %s", order[0].Address, exchanges, m.other.Address), ok)
	return hits
}

// startAgain starts the server again, after something was done to the files.
func (m *market) startAgain(between func(), args ...string) {
	m.t.Helper()
	m.end()
	between()
	m.server = startServer(m.t, m.db, args...)
}

// From an acknowledgement over HTTP to another order, which goes when it is forgotten, comes
// again from the database alone, and neither shows nor grows where the relay does not learn.
func TestCompletedMessagesChangeTheOrder(t *testing.T) {
	t.Parallel()
	m := newMarket(t)
	nothing := func() {}
	m.mustRank(0, m.better, m.other)
	m.exchangeAll()
	m.mustRank(12, m.other, m.better)

	mustRelay(t, "search", "forget", m.other.Address, "--db", m.db)
	m.mustRank(0, m.better, m.other)
	m.exchangeAll()
	want := m.mustRank(12, m.other, m.better)

	m.startAgain(func() {
		if err := os.RemoveAll(m.db + ".index"); err != nil {
			t.Fatal(err)
		}
	})
	if got := m.mustRank(12, m.other, m.better); !slices.Equal(got, want) {
		t.Errorf("with a new index %+v, before %+v", got, want)
	}

	m.startAgain(nothing, "--learn=false")
	m.mustRank(0, m.better, m.other)
	m.exchange(m.askers[0])
	m.startAgain(nothing)
	if got := m.mustRank(12, m.other, m.better); !slices.Equal(got, want) {
		t.Errorf("after a server that does not learn %+v, before %+v", got, want)
	}
	d := byHand(t, m.db)
	defer d.Close()
	var waiting int
	if err := d.QueryRow("SELECT count(*) FROM exchange").Scan(&waiting); err != nil || waiting != 0 {
		t.Errorf("%d exchanges wait to be counted; %v", waiting, err)
	}
}
