package db_test

import (
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"relay/db/file"
	_ "relay/db/file/check"
	"relay/db/scratch"
)

func TestAWholeFileHasNoFaults(t *testing.T) {
	t.Parallel()
	path := mustFill(t)
	if names, said, r := found(t, path); len(names) > 0 || r.Messages != 12 || r.Mechas != 4 || r.Checks < 20 {
		t.Errorf("%+v\n%s", r, said)
	}
}

// Each case breaks one rule by SQL, and the check of that rule must find it.
func TestEveryBrokenRuleIsFound(t *testing.T) {
	t.Parallel()
	whole := content(t, mustFill(t))
	const (
		oldest = "(SELECT min(position) FROM message)"
		acked  = "(SELECT position FROM message WHERE state = 2)"
		dead   = "(SELECT position FROM message WHERE state = 3)"
		first  = "(SELECT min(position) FROM receipt)"
		last   = "(SELECT receipt FROM message WHERE state = 2)"          // of a chain of five
		second = "(SELECT position + 1 FROM message WHERE broadcast = 3)" // of a message to a crew
	)
	for i, c := range []struct{ check, rule, broken string }{
		{"schema", "a table of ours", "DROP INDEX message_idempotency"},
		{"schema", "nothing else", "CREATE INDEX notes ON message (type)"},
		{"references", "a message's sender", "UPDATE message SET sender = 999 WHERE position = " + oldest},
		{"references", "a key's Mecha", "UPDATE mecha_key SET mecha = 999 WHERE id = 1"},
		{"settings", "a secret", "DELETE FROM setting WHERE name = 'secret'"},
		{"settings", "a whole secret", "UPDATE setting SET value = x'0011' WHERE name = 'secret'"},
		{"settings", "a number", "UPDATE setting SET value = 'many' WHERE name = 'keys_version'"},
		{"settings", "how far messages are indexed", "DELETE FROM setting WHERE name = 'indexed_upto'"},
		{"mailboxes", "a row for the recipient", "DELETE FROM received WHERE position = " + oldest},
		{"mailboxes", "a row for the sender", "DELETE FROM sent WHERE position = " + oldest},
		{"mailboxes", "with its recipient", "UPDATE received SET mecha = mecha + 1 WHERE position = " + oldest},
		{"mailboxes", "not pending", "UPDATE received SET open = 1 WHERE position = " + acked},
		{"mailboxes", "once with its recipient", "INSERT INTO received SELECT mecha + 1, open, position FROM received WHERE position = " + oldest},
		{"mailboxes", "once with its sender", "INSERT INTO sent SELECT mecha + 1, position FROM sent WHERE position = " + oldest},
		{"mailboxes", "no more than messages", "INSERT INTO sent VALUES (1, 4096)"},
		{"joined", "with its conversation", "DELETE FROM joined WHERE position = (SELECT max(position) FROM joined)"},
		{"joined", "with its label", "DELETE FROM joined WHERE conversation < 0"},
		{"joined", "once with its conversation", "INSERT INTO joined SELECT conversation + 1, position FROM joined WHERE conversation < 0"},
		{"joined", "not if it founded one", "INSERT INTO joined VALUES (5, " + oldest + ")"},
		{"joined", "no more than messages", "INSERT INTO joined VALUES (4096, 8192)"},
		{"joined", "with its question", "DELETE FROM reply"},
		{"joined", "once with its question", "INSERT INTO reply SELECT question + 1, position FROM reply"},
		{"joined", "not if it answers none", "INSERT INTO reply VALUES (5, " + oldest + ")"},
		{"joined", "no more than answers", "INSERT INTO reply VALUES (4096, 8192)"},
		{"words", "no empty word", "UPDATE word SET text = '' WHERE text = 'normal'"},
		{"words", "no long word", "UPDATE word SET text = printf('%300d', 1) WHERE text = 'normal'"},
		{"words", "a used word", "DELETE FROM word WHERE text = 'normal'"},
		{"words", "a used status", "DELETE FROM word WHERE text = 'noted'"},
		{"words", "a word once", "INSERT INTO word (text) VALUES ('normal')"},
		{"words", "a word once in the index", "INSERT INTO word (text) VALUES ('normal'); INSERT INTO word_hash SELECT hash, last_insert_rowid() FROM word_hash WHERE word = (SELECT min(id) FROM word WHERE text = 'normal')"},
		{"words", "a new word once", "INSERT INTO word (text) VALUES ('new'), ('new')"},
		{"words", "the index", "DELETE FROM word_hash WHERE word = (SELECT id FROM word WHERE text = 'normal')"},
		{"words", "its place in the index", "UPDATE word_hash SET hash = hash + 1 WHERE word = (SELECT id FROM word WHERE text = 'normal')"},
		{"words", "no word in the index that is gone", "INSERT INTO word_hash VALUES (1, 999)"},
		{"settings", "how far words are indexed", "DELETE FROM setting WHERE name = 'words_indexed_upto'"},
		{"addresses", "an address", "UPDATE mecha SET address = 'nobody' WHERE address = 'bob^demo'"},
		{"directory", "one revision each", "UPDATE mecha SET revision = (SELECT max(revision) FROM mecha)"},
		{"directory", "no revision 0", "UPDATE mecha SET revision = 0 WHERE id = 1"},
		{"directory", "no keys of the removed", "UPDATE mecha_key SET revoked_at = NULL"},
		{"directory", "no profile of the removed", "UPDATE profile SET mecha = (SELECT id FROM mecha WHERE removed_at IS NOT NULL)"},
		{"profiles", "JSON", "UPDATE profile SET body = '{'"},
		{"profiles", "bounds", "UPDATE profile SET body = json_set(body, '$.description', printf('%3000d', 1))"},
		{"profiles", "visibility", "UPDATE profile SET visibility = 0"},
		{"profiles", "who may write", "UPDATE profile SET accept_from = NULL"},
		{"profiles", "a card", "UPDATE profile SET card = '{'"},
		{"keys", "an id", "UPDATE mecha_key SET public_id = 'key_UPPER' WHERE id = 1"},
		{"keys", "a hash", "UPDATE mecha_key SET hash = x'00' WHERE id = 1"},
		{"keys", "a secret", "UPDATE mecha_key SET secret = 'ms_short' WHERE secret IS NOT NULL"},
		{"positions", "a time", "UPDATE kept_nonce SET position = -5"},
		{"positions", "ahead of the clock", "INSERT INTO clock_ahead VALUES (4096, 5000)"},
		{"positions", "one of a message and a receipt", "UPDATE receipt SET position = " + oldest + " WHERE position = " + first},
		{"positions", "one of a message and a profile's nonce", "UPDATE kept_nonce SET position = " + oldest},
		{"states", "a state", "UPDATE message SET state = 7 WHERE position = " + oldest},
		{"states", "open", "UPDATE message SET open = 0 WHERE position = " + oldest},
		{"states", "closed", "UPDATE message SET open = 1 WHERE position = " + acked},
		{"states", "nothing done to the queued", "UPDATE message SET delivered_at = 1900000000000 WHERE position = " + oldest},
		{"states", "delivered_at", "UPDATE message SET delivered_at = NULL WHERE state = 1"},
		{"states", "acknowledged_at", "UPDATE message SET acknowledged_at = NULL WHERE state = 2"},
		{"states", "no acknowledged_at", "UPDATE message SET acknowledged_at = delivered_at WHERE state = 1"},
		{"states", "an acknowledgement", "UPDATE message SET ack = NULL WHERE state = 2"},
		{"states", "expires_at", "UPDATE message SET expires_at = NULL WHERE state = 3"},
		{"states", "a receipt", "UPDATE message SET receipt = NULL WHERE state = 1"},
		{"states", "time goes on", "UPDATE message SET delivered_at = (position >> 12) - 1 WHERE state = 1"},
		{"states", "delivered first", "UPDATE message SET delivered_at = acknowledged_at + 1 WHERE state = 2"},
		{"states", "signed", "UPDATE message SET signed = 2 WHERE position = " + oldest},
		{"senders", "its own key", "UPDATE message SET sender_key = (SELECT id FROM mecha_key WHERE mecha <> sender LIMIT 1) WHERE position = " + oldest},
		{"conversations", "a label", "DELETE FROM word WHERE text = 'a-label'"},
		{"conversations", "before", "UPDATE message SET conversation = position + 1 WHERE conversation > 0"},
		{"conversations", "a founder", "UPDATE message SET conversation = (SELECT max(position) FROM message m WHERE m.conversation IS NOT NULL) WHERE position = (SELECT max(position) FROM message)"},
		{"conversations", "not 0", "UPDATE message SET conversation = 0 WHERE conversation < 0"},
		{"broadcasts", "somebody", "UPDATE message SET broadcast = 0 WHERE broadcast = 3"},
		{"broadcasts", "the same conversation", "UPDATE message SET conversation = NULL WHERE position = " + second},
		{"broadcasts", "the same payload", "UPDATE message SET payload_sha256 = x'00' WHERE position = " + second},
		{"broadcasts", "another recipient", "UPDATE message SET recipient = (SELECT recipient FROM message WHERE broadcast = 3) WHERE position = " + second},
		{"broadcasts", "no other broadcast", "UPDATE message SET broadcast = 2 WHERE position = " + second},
		{"broadcasts", "no receipt among them", "UPDATE receipt SET position = " + second + " WHERE position = " + last},
		{"learned", "a Mecha", "INSERT INTO learner VALUES (999, 4096, 0, 0, 0, 0)"},
		{"learned", "a wish", "INSERT INTO learner VALUES (1, 4096, 0, 0, 0, 2)"},
		{"learned", "not against its wish", "INSERT INTO learner VALUES (1, 4096, 0, 0, 1, 1); INSERT INTO learned VALUES (1, '', 1, x'00')"},
		{"learned", "so many words", "INSERT INTO learner VALUES (1, 4096, 0, 0, 2, 0); INSERT INTO learned VALUES (1, '', 1, x'00')"},
		{"learned", "a row of the Mecha", "INSERT INTO learned VALUES (1, '', 1, x'00')"},
		{"learned", "a count", "INSERT INTO learner VALUES (1, 4096, 0, 0, 1, 0); INSERT INTO learned VALUES (1, '', 1, x'')"},
		{"learned", "the first words", "INSERT INTO learner VALUES (1, 4096, 0, 0, 1, 0); INSERT INTO learned VALUES (1, 'book', 1, x'00')"},
		{"learned", "not of the removed", "INSERT INTO learner SELECT id, 4096, 0, 0, 1, 0 FROM mecha WHERE removed_at IS NOT NULL; INSERT INTO learned SELECT id, '', 1, x'00' FROM mecha WHERE removed_at IS NOT NULL"},
		{"learned", "words in a search", "UPDATE message SET sought = '' WHERE position = " + oldest},
		{"learned", "no words in the expired", "UPDATE message SET sought = 'book' WHERE position = " + dead},
		{"participants", "the third", "DELETE FROM participant WHERE conversation > 0"},
		{"participants", "those of a label", "DELETE FROM participant WHERE conversation < 0"},
		{"participants", "of a conversation", "INSERT INTO participant VALUES (-999, 1)"},
		{"receipts", "a message", "DELETE FROM message WHERE position = " + acked},
		{"receipts", "later than the message", "UPDATE receipt SET position = 4096 WHERE position = " + first},
		{"receipts", "a state", "UPDATE receipt SET state = 0 WHERE position = " + first},
		{"receipts", "one before", "UPDATE receipt SET previous = 4096 WHERE position = " + last},
		{"receipts", "of the same message", "UPDATE receipt SET previous = " + first + " WHERE position = " + last},
		{"receipts", "older first", "UPDATE receipt SET previous = position WHERE position = " + last},
		{"receipts", "not back", "UPDATE receipt SET state = 1 WHERE position = " + last},
		{"receipts", "a word", "UPDATE receipt SET status = NULL, client_ts = NULL WHERE position = " + last},
		{"receipts", "a client's time", "UPDATE receipt SET client_ts = NULL WHERE position = " + last},
		{"receipts", "a key", "UPDATE receipt SET key = NULL WHERE position = " + first},
		{"receipts", "the recipient's key", "UPDATE receipt SET key = (SELECT sender_key FROM message WHERE position = " + acked + ") WHERE position = " + last},
		{"receipts", "the clock", "UPDATE receipt SET key = 1 WHERE state = 3"},
		{"chains", "the newest", "UPDATE message SET receipt = (SELECT min(position) FROM receipt r WHERE r.message = message.position) WHERE position = " + acked},
		{"chains", "all of them", "UPDATE receipt SET previous = NULL WHERE position = " + last},
		{"chains", "no other", "INSERT INTO receipt (position, message, state, key) SELECT max(r.position) + 1, m.position, 1, k.id FROM receipt r, message m JOIN mecha_key k ON k.mecha = m.recipient WHERE m.state = 1 GROUP BY m.position, k.id"},
		{"chains", "the acknowledgement", "UPDATE message SET ack = (SELECT previous FROM receipt r WHERE r.position = message.receipt) WHERE state = 2"},
		{"chains", "the state", "UPDATE message SET state = 1, open = 1, acknowledged_at = NULL WHERE state = 2"},
		{"chains", "delivered_at", "UPDATE message SET delivered_at = delivered_at + 1 WHERE state = 1"},
		{"chains", "acknowledged_at", "UPDATE message SET acknowledged_at = acknowledged_at + 1 WHERE state = 2"},
		{"chains", "no count without receipts", "INSERT INTO progress SELECT min(position), 1 FROM message WHERE receipt IS NULL"},
		{"chains", "no larger count than receipts", "UPDATE progress SET acks = 4 WHERE message = " + acked},
		{"chains", "no smaller one", "DELETE FROM progress WHERE message = " + acked},
		{"chains", "no count of nothing", "UPDATE progress SET acks = 0 WHERE message = " + acked},
		{"chains", "expired", "UPDATE message SET state = 1, open = 1 WHERE position = " + dead},
		{"settings", "the last position", "DELETE FROM setting WHERE name = 'last_position'"},
		{"removal", "gone, if it waits to be unlisted", "INSERT INTO unlisted SELECT position, recipient, sender FROM message WHERE position = " + oldest},
		{"removal", "no position given out again", "INSERT INTO unlisted VALUES ((SELECT value FROM setting WHERE name = 'last_position') + 1, 1, 1)"},
		{"removal", "no message in a dormant conversation", "INSERT INTO dormant (conversation, since) VALUES (" + oldest + ", 5)"},
		{"removal", "no message in a dormant conversation of a label", "INSERT INTO dormant (conversation, since) SELECT conversation, 5 FROM message WHERE conversation < 0"},
		{"removal", "not even one that waits to be indexed", "INSERT INTO dormant (conversation, since) SELECT conversation, 5 FROM message WHERE conversation < 0; DELETE FROM joined; UPDATE setting SET value = 0 WHERE name = 'indexed_upto'"},
		{"removal", "two parties or none", "INSERT INTO dormant (conversation, since, sender) VALUES (4096, 5, 1)"},
		{"removal", "a dormant label", "INSERT INTO dormant (conversation, since) VALUES (-999, 5)"},
		{"removal", "participants of a conversation", "INSERT INTO participant VALUES (4096, 1)"},
		{"removal", "the use of a type", "UPDATE word SET used = 0 WHERE text = 'normal'"},
		{"removal", "the use of a status", "UPDATE word SET used = 0 WHERE text = 'noted'"},
		{"removal", "the end of a sender's key", "UPDATE mecha_key SET ended = 1 WHERE mecha = (SELECT sender FROM message WHERE position = " + oldest + ")"},
		{"removal", "the end of a recipient's key", "UPDATE mecha_key SET ended = " + oldest + " WHERE id = (SELECT key FROM receipt WHERE position = " + last + ")"},
		{"payloads", "there", "DELETE FROM payload WHERE position = " + oldest},
		{"payloads", "of a message", "INSERT INTO payload VALUES (4096, x'7b7d')"},
		{"payloads", "as long", "UPDATE message SET payload_bytes = 99 WHERE position = " + oldest},
		{"payloads", "a hash", "UPDATE message SET payload_sha256 = x'00' WHERE position = " + oldest},
		{"contents", "the same", `UPDATE payload SET body = CAST('{"n": 7}' AS BLOB) WHERE position = ` + oldest},
		{"contents", "the hash", "UPDATE message SET payload_sha256 = zeroblob(32) WHERE position = " + oldest},
		{"searches", "an id", "UPDATE search SET id = 'search'"},
		{"searches", "JSON", "UPDATE search SET answer = 'none'"},
		{"clock", "not yet to come", "UPDATE kept_nonce SET position = position + (3600000 << 12)"},
	} {
		if !scratch.Long(t) && i%2 == 1 {
			continue // half of them in the usual form
		}
		t.Run(c.check+"/"+c.rule, func(t *testing.T) {
			path := filepath.Join(scratch.Dir(t), "broken.db")
			if err := os.WriteFile(path, whole, 0o600); err != nil {
				t.Fatal(err)
			}
			if after := makeByHand(t, path, c.broken); string(after) == string(whole) {
				t.Fatal("it broke nothing")
			}
			names, said, r := found(t, path)
			if !slices.Contains(names, c.check) {
				t.Errorf("%s was not found, but %v\n%s", c.check, names, said)
			}
			if (c.check == "clock") != (r.Faults == 0) {
				t.Errorf("%d faults, %d warnings", r.Faults, r.Warnings)
			}
		})
	}
}

// The payload is not a JSON object, though its hash is right.
func TestAPayloadThatIsNotJSONIsFound(t *testing.T) {
	t.Parallel()
	path := mustFill(t)
	makeByHand(t, path, `UPDATE payload SET body = CAST('{"n": 1' AS BLOB) WHERE position = (SELECT min(position) FROM message)`,
		`UPDATE message SET payload_bytes = 7, payload_sha256 = x'706b303b9f8f955786f3c0ffecdc3f1d79b493a1d6eaac284db10f0bc8f38976' WHERE position = (SELECT min(position) FROM message)`)
	if names, said, _ := found(t, path); !slices.Equal(names, []string{"contents"}) || !strings.Contains(said, "is not a JSON object") {
		t.Errorf("%v\n%s", names, said)
	}
	if names, said, r := found(t, path, func(o *file.CheckOptions) { o.Quick = true }); len(names) > 0 || r.Checks != 27 {
		t.Errorf("a quick check does not look at it, but: %v\n%s", names, said)
	}
}

func TestADamagedPageIsFound(t *testing.T) {
	t.Parallel()
	whole := content(t, mustFill(t))
	page := int(binary.BigEndian.Uint16(whole[16:]))
	for name, damage := range map[string]func([]byte) []byte{
		"a page of zeros":      func(b []byte) []byte { clear(b[5*page : 6*page]); return b },
		"the first cell's end": func(b []byte) []byte { copy(b[6*page:], "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"); return b },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "damaged.db")
			if err := os.WriteFile(path, damage(slices.Clone(whole)), 0o600); err != nil {
				t.Fatal(err)
			}
			if names, said, _ := found(t, path); !slices.Contains(names, "file") {
				t.Errorf("%v\n%s", names, said)
			}
		})
	}
}

func TestAFileThatCannotBeReadAtAllIsRefused(t *testing.T) {
	t.Parallel()
	whole := content(t, mustFill(t))
	dir := t.TempDir()
	for says, bytes := range map[string][]byte{
		"is damaged":            whole[:len(whole)-8192],
		"is not a database":     []byte(strings.Repeat("These are my notes.\n", 1000)),
		"is empty":              {},
		"is a database, but no": makeByHand(t, filepath.Join(dir, "foreign.db"), "CREATE TABLE place (url TEXT)"),
	} {
		path := filepath.Join(dir, "other.db")
		if err := os.WriteFile(path, bytes, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := file.Check(ctx, file.CheckOptions{Path: path, Schema: schema(t)})
		if err == nil || !strings.Contains(err.Error(), path+" "+says) {
			t.Errorf("%v; want %s %s", err, path, says)
		}
	}
}

// A check sees one state of the file, even if others write to it meanwhile.
func TestACheckSeesOneStateOfABusyFile(t *testing.T) {
	t.Parallel()
	s := mustOpen(t)
	alice, bob := s.mustIssue("alice^demo"), s.mustIssue("bob^demo")
	stop, ended := make(chan struct{}), make(chan struct{})
	s.mustSend(alice.Key, "bob^demo", `{}`)
	go func() {
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			default:
				s.mustAck(bob.Key, s.mustSend(alice.Key, "bob^demo", `{}`).ID, "completed")
			}
		}
	}()
	defer func() { close(stop); <-ended }()
	for range scratch.Amount(t, 8, 20) {
		if names, said, r := found(t, s.Path()); len(names) > 0 || r.Messages == 0 {
			t.Fatalf("%+v\n%s", r, said)
		}
	}
}

func TestACheckEndsWithItsContext(t *testing.T) {
	t.Parallel()
	path := mustFill(t)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := file.Check(ctx, file.CheckOptions{Path: path, Schema: schema(t), Report: func(file.Finding) { cancel() }})
	if err != context.Canceled {
		t.Errorf("%v", err)
	}
}

// The tables that Litestream makes are not faults. Others with such names are foreign (TestForeignParts in
// db/file).
func TestTheTablesOfLitestreamAreNoFaults(t *testing.T) {
	t.Parallel()
	path := mustFill(t)
	makeByHand(t, path, "CREATE TABLE _litestream_seq (id INTEGER PRIMARY KEY, seq INTEGER)", "CREATE TABLE _litestream_lock (id INTEGER)")
	if names, said, _ := found(t, path); len(names) > 0 {
		t.Error(said)
	}
}
