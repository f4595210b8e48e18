package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// all has every description that describe has made.
var all []*prometheus.Desc

func describe(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc("relay_"+name, help, labels, nil)
	all = append(all, d)
	return d
}

// The metrics. The page http/docs/watching.md has a row for each, which a test checks.
var (
	buildInfo = describe("build_info", "Always 1; the labels say what is running.", "version", "commit", "goversion")

	sent    = describe("messages_sent_total", "Messages that were accepted.")
	toCrews = describe("messages_to_crews_total",
		"Messages to all Mechas of a crew at once; relay_messages_sent_total has those that each Mecha got.")
	removed = describe("messages_removed_total",
		"Messages that were removed: for their age, after their expiry, or by relay prune.")
	expired = describe("messages_expired_total", "Messages that expired before their recipient answered for them.")
	overdue = describe("messages_overdue_total",
		"Messages that were not acknowledged by the time that their sender had set.")
	claimed  = describe("messages_claimed_total", "Messages that workers got by a claim, each attempt counted.")
	returned = describe("messages_returned_total", "Messages that were redelivered because a lease or a deferral ended.")
	spent    = describe("messages_attempts_spent_total",
		"Messages that the relay acknowledged as failed, because their attempts were spent.")
	full = describe("conversations_full_total", "Conversations that had no room for a further message.")
	acks = describe("acks_total",
		"Acknowledgements that were written, by their word; words without a meaning of their own are other.", "status")
	pushed  = describe("messages_pushed_total", "Messages that were written to WebSockets, once for each socket.")
	pushLag = describe("push_lag_seconds", "From the commit of a message to the end of its write to a WebSocket that "+
		"has caught up; of several in a write, the oldest.")
	requests = describe("http_requests_total", "Requests that the API's listener has taken.")
	refusals = describe("refusals_total", "Refusals, by the code of the problem document or error frame.", "over", "code")

	pendingMessages = describe("messages_pending",
		"Messages that wait for their recipient to answer for them, and are at least as old as the label says.", "older_than")
	pendingOldest = describe("messages_pending_oldest_seconds", "Age of the oldest pending message; 0 if none is pending.")

	commitSeconds = describe("commit_seconds",
		"Transactions of the one writer, with the wait for the write lock of the file.")
	syncSeconds = describe("commit_sync_seconds",
		"SQLite's COMMIT of transactions that change something: appending to the log, and one fsync.")
	commitWrites   = describe("commit_writes", "Writes and notes in a transaction.")
	commitFailures = describe("commit_failures_total", "Transactions that failed.")
	queueLength    = describe("write_queue_length", "Writes and notes that wait for the next transaction.")
	queueOldest    = describe("write_queue_oldest_seconds", "How long the oldest write in the queue has waited.")
	queueWait      = describe("write_queue_wait_seconds", "How long the oldest write of a transaction had waited for it.")
	waits          = describe("wait_seconds",
		"Waits for a turn, of what had to wait, because of others or because of its Mecha's own share.", "kind")

	sockets   = describe("sockets", "WebSockets that are open.")
	longPolls = describe("long_polls", "Long-polls that wait.")
	online    = describe("mechas_online", "Mechas with an open WebSocket or long-poll.")

	searches      = describe("searches_total", "Searches by their outcome; a partial one ran out of its time.", "outcome")
	searchSeconds = describe("search_seconds", "Time of searches in the index, with their wait for a turn.")
	indexLag      = describe("search_index_lag_seconds",
		"For how long the search index has lacked the oldest change that it has not applied; 0 if it has applied all.")
	indexMechas = describe("search_index_mechas", "Mechas in the search index.")
	indexReady  = describe("search_index_ready", "1 once the search index has caught up after the start, else 0.")
	unindexed   = describe("mailbox_unindexed_messages",
		"Messages that the mailbox tables do not have yet; usually up to some ten thousand.")

	fileBytes = describe("database_file_bytes", "Size of the database file.")
	logBytes  = describe("database_wal_bytes", "Size of the database's write-ahead log.")
	diskFree  = describe("disk_free_bytes", "Space on the database's disk that the relay could still use.")
	accepting = describe("accepting_messages", "1 if there is room on the disk for messages, else 0.")
	writable  = describe("database_writable", "0 if the store has failed or another process keeps its write lock, else 1.")
)

// ageName is the value of the label older_than.
func ageName(age time.Duration) string {
	switch {
	case age == 0:
		return "0s"
	case age%(24*time.Hour) == 0:
		return number(age/(24*time.Hour)) + "d"
	case age%time.Hour == 0:
		return number(age/time.Hour) + "h"
	}
	return number(age/time.Minute) + "m"
}
