package file_test

import (
	"bytes"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"relay/db"
	"relay/db/file"
	"relay/db/relay"
)

// step is an upgrade that the program is made to know. The tests of this file cannot
// run in parallel.
const step = "CREATE TABLE pretended (id INTEGER PRIMARY KEY, of INTEGER NOT NULL) STRICT;"

// schema is the real one.
func schema(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func mustOpen(t *testing.T, path, schema string) *db.DB {
	t.Helper()
	d, err := db.Open(db.Options{Path: path, Schema: schema, Create: true, Serve: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// number reads a number from a file by SQLite alone.
func number(t *testing.T, path, query string) (n int) {
	t.Helper()
	d, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.QueryRow(query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// mustMakeOlder makes a file with a message, by a program that lacks the step.
func mustMakeOlder(t *testing.T) (path string, id relay.MessageID) {
	t.Helper()
	d := mustOpen(t, filepath.Join(t.TempDir(), "relay.db"), schema(t))
	k, err := d.Issue(&relay.IssueKey{At: time.Now(), Address: "old^timer"})
	if err != nil {
		t.Fatal(err)
	}
	m := &relay.SendMessage{At: time.Now(), Key: k.Number, To: "old^timer", Payload: []byte(`{}`)}
	if err := m.Validate(); err != nil {
		t.Fatal(err)
	}
	sent, err := d.Send(m)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	return d.Path(), sent.ID
}

// wantWhole checks a file, which must be of a version and have a message.
func wantWhole(t *testing.T, path, schema string, version int64) {
	t.Helper()
	wantWholeOf(t, path, schema, version, 1)
}

// wantWholeOf is wantWhole for a file of so many messages.
func wantWholeOf(t *testing.T, path, schema string, version, messages int64) {
	t.Helper()
	var said []string
	r, err := file.Check(t.Context(), file.CheckOptions{Path: path, Schema: schema, Report: func(f file.Finding) { said = append(said, f.Examples...) }})
	if err != nil || r.Faults > 0 || r.Schema != version || r.Messages != messages {
		t.Errorf("%+v, %v, %q; want a whole file of version %d", r, err, said, version)
	}
}

// A file of the first schema has messages, and no table of progress.
func TestAFileOfTheFirstSchemaIsBroughtUpToDate(t *testing.T) {
	path, _ := mustMakeOlder(t)
	execute(t, path, "DROP TABLE word_hash", "DROP TABLE audit", "DROP TABLE prune", "DROP TABLE unlisted", "DROP TABLE dormant", "DROP INDEX message_expired",
		"CREATE TABLE profile_nonce (position INTEGER PRIMARY KEY, nonce INTEGER NOT NULL) STRICT", "DROP TABLE kept_nonce",
		"ALTER TABLE word DROP COLUMN used", "ALTER TABLE mecha_key DROP COLUMN ended", "DELETE FROM setting WHERE name IN ('last_position', 'clock')",
		"DROP TABLE progress", "DROP TABLE conversation_limit", "DROP INDEX message_ack_by", "DROP TABLE joined", "DROP TABLE reply", "CREATE INDEX message_conversation ON message (conversation) WHERE conversation IS NOT NULL", "ALTER TABLE receipt DROP COLUMN notice", "ALTER TABLE receipt DROP COLUMN until", "DROP TABLE attempt",
		"ALTER TABLE message DROP COLUMN in_reply_to", "ALTER TABLE message DROP COLUMN ack_by", "ALTER TABLE message DROP COLUMN overdue",
		"ALTER TABLE message DROP COLUMN traceparent", "ALTER TABLE message DROP COLUMN tracestate", "ALTER TABLE message DROP COLUMN broadcast",
		"ALTER TABLE mecha_key DROP COLUMN broadcast", "ALTER TABLE profile DROP COLUMN accept_from", "DROP INDEX mecha_crew", "DROP TABLE clock_ahead",
		"ALTER TABLE message DROP COLUMN sought", "ALTER TABLE search DROP COLUMN words", "ALTER TABLE search DROP COLUMN listed", "DROP TABLE exchange", "DROP TABLE counting", "DROP TABLE learner", "DROP TABLE learned", "DROP TABLE replica", "DROP TABLE origin", "DROP TABLE entry_nonce", "PRAGMA user_version = 1")
	d := mustOpen(t, path, schema(t))
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	wantWhole(t, path, schema(t), file.CurrentSchema())
}

// A file of the third schema is made from the text of that schema. The upgrade cannot know
// which rows refer to a word or to an ended key, so it notes the newest row as the last use.
func TestAFileOfTheThirdSchemaIsBroughtUpToDate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "relay.db")
	old, err := os.ReadFile("testdata/schema-3.sql")
	if err != nil {
		t.Fatal(err)
	}
	const hash = "x'44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a'" // of {}
	execute(t, path, "PRAGMA auto_vacuum = INCREMENTAL", string(old), "PRAGMA application_id = 0x524c4159", "PRAGMA user_version = 3",
		"INSERT INTO setting VALUES ('secret', randomblob(32)), ('keys_version', 3), ('indexed_upto', 0), ('start', x'')",
		"INSERT INTO mecha (id, address, created_at, revision) VALUES (1, 'old^timer', 1, 4096)",
		"INSERT INTO mecha_key (id, public_id, mecha, hash, label, created_at, revoked_at) VALUES (1, 'key_0000000000000000', 1, randomblob(32), '', 1, 5)",
		"INSERT INTO word (id, text) VALUES (1, 'quote'), (2, 'normal'), (3, '1.0'), (4, 'unused')",
		`INSERT INTO message (position, recipient, sender, open, state, type, priority, version, sender_key, signed, nonce, payload_bytes, payload_sha256)
			VALUES (8192, 1, 1, 1, 0, 1, 2, 3, 1, 0, 7, 2, `+hash+`)`,
		"INSERT INTO payload VALUES (8192, x'7b7d')", "INSERT INTO profile_nonce VALUES (12288, 9)")
	wantWhole(t, path, schema(t), 3)
	if err := mustOpen(t, path, schema(t)).Close(); err != nil {
		t.Fatal(err)
	}
	wantWhole(t, path, schema(t), file.CurrentSchema())
	for query, want := range map[string]int{
		"SELECT value FROM setting WHERE name = 'last_position'": 12288, "SELECT nonce FROM kept_nonce": 9,
		"SELECT ended FROM mecha_key": 12288, "SELECT min(used) FROM word": 12288, "PRAGMA auto_vacuum": 2,
	} {
		if n := number(t, path, query); n != want {
			t.Errorf("%s: %d, want %d", query, n, want)
		}
	}
}

// A file of the sixth schema is made from the text of that schema. Nothing was learned in it.
func TestAFileOfTheSixthSchemaIsBroughtUpToDate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "relay.db")
	old, err := os.ReadFile("testdata/schema-6.sql")
	if err != nil {
		t.Fatal(err)
	}
	const hash = "x'44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a'" // of {}
	execute(t, path, "PRAGMA auto_vacuum = INCREMENTAL", string(old), "PRAGMA application_id = 0x524c4159", "PRAGMA user_version = 6",
		"INSERT INTO setting VALUES ('secret', randomblob(32)), ('keys_version', 3), ('indexed_upto', 0), ('start', x''), ('last_position', 0), ('clock', 0)",
		"INSERT INTO mecha (id, address, created_at, revision) VALUES (1, 'old^timer', 1, 4096)",
		"INSERT INTO mecha_key (id, public_id, mecha, hash, label, created_at) VALUES (1, 'key_0000000000000000', 1, randomblob(32), '', 1)",
		"INSERT INTO word (id, text) VALUES (1, 'quote'), (2, 'normal'), (3, '1.0')",
		"INSERT INTO search VALUES (20480, 'srch_01234567890123456789012345', 1, 3600000, '{}', NULL)",
		`INSERT INTO message (position, recipient, sender, open, state, type, priority, version, sender_key, signed, nonce, payload_bytes, payload_sha256)
			VALUES (8192, 1, 1, 1, 0, 1, 2, 3, 1, 0, 7, 2, `+hash+`)`,
		"INSERT INTO payload VALUES (8192, x'7b7d')")
	wantWhole(t, path, schema(t), 6)
	if err := mustOpen(t, path, schema(t)).Close(); err != nil {
		t.Fatal(err)
	}
	wantWhole(t, path, schema(t), file.CurrentSchema())
	for query, want := range map[string]int{
		"SELECT count(*) FROM message WHERE sought IS NULL": 1, "SELECT count(*) FROM learner": 0, "SELECT count(*) FROM learned": 0,
		"SELECT count(*) FROM search WHERE words IS NULL AND listed IS NULL": 1,
	} {
		if n := number(t, path, query); n != want {
			t.Errorf("%s: %d, want %d", query, n, want)
		}
	}
}

// A file of the seventh schema is made from the text of that schema. It finds the messages of a
// conversation, and answers, by indexes of `message`. Its last message is not in the mailboxes yet.
func TestAFileOfTheSeventhSchemaIsBroughtUpToDate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "relay.db")
	old, err := os.ReadFile("testdata/schema-7.sql")
	if err != nil {
		t.Fatal(err)
	}
	const hash = "x'44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a'" // of {}
	execute(t, path, "PRAGMA auto_vacuum = INCREMENTAL", string(old), "PRAGMA application_id = 0x524c4159", "PRAGMA user_version = 7",
		"INSERT INTO setting VALUES ('secret', randomblob(32)), ('keys_version', 3), ('indexed_upto', 12288), ('start', x''), ('last_position', 0), ('clock', 0)",
		"INSERT INTO mecha (id, address, created_at, revision) VALUES (1, 'old^timer', 1, 4096)",
		"INSERT INTO mecha_key (id, public_id, mecha, hash, label, created_at) VALUES (1, 'key_0000000000000000', 1, randomblob(32), '', 1)",
		"INSERT INTO word (id, text) VALUES (1, 'quote'), (2, 'normal'), (3, '1.0'), (4, 'a-label')")
	for _, m := range []string{"8192, NULL, NULL", "12288, 8192, 8192", "16384, -4, 12288"} { // position, conversation, in_reply_to
		position, _, _ := strings.Cut(m, ",")
		execute(t, path, `INSERT INTO message (position, conversation, in_reply_to, recipient, sender, open, state, type, priority, version, sender_key, signed, nonce, payload_bytes, payload_sha256)
			VALUES (`+m+`, 1, 1, 1, 0, 1, 2, 3, 1, 0, 7, 2, `+hash+`)`, "INSERT INTO payload VALUES ("+position+", x'7b7d')")
	}
	execute(t, path, "INSERT INTO received VALUES (1, 1, 8192), (1, 1, 12288)", "INSERT INTO sent VALUES (1, 8192), (1, 12288)", "INSERT INTO participant VALUES (-4, 1)",
		"INSERT INTO conversation_limit VALUES (8192, 8192, NULL, 2, 0), (-4, 16384, NULL, 1, 0)")
	wantWholeOf(t, path, schema(t), 7, 3)
	d, err := file.OpenCurrent(path, schema(t), true)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	wantWholeOf(t, path, schema(t), file.CurrentSchema(), 3)
	for _, before := range []bool{true, false} { // the last message is indexed late, as a server does it
		for query, want := range map[string]int{
			"SELECT count(*) FROM joined": 2, "SELECT position FROM joined WHERE conversation = 8192": 12288, "SELECT position FROM joined WHERE conversation = -4": 16384,
			"SELECT count(*) FROM reply": 2, "SELECT position FROM reply WHERE question = 8192": 12288, "SELECT position FROM reply WHERE question = 12288": 16384,
		} {
			if n := number(t, path, query); n != want {
				t.Errorf("%s: %d, want %d", query, n, want)
			}
		}
		if before {
			if err := mustOpen(t, path, schema(t)).Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	wantWholeOf(t, path, schema(t), file.CurrentSchema(), 3)
}

// A file of the eighth schema is made from the text of that schema. Its participants stay, and
// one of them may be a Mecha that is gone.
func TestAFileOfTheEighthSchemaKeepsItsParticipants(t *testing.T) {
	path := filepath.Join(t.TempDir(), "relay.db")
	old, err := os.ReadFile("testdata/schema-8.sql")
	if err != nil {
		t.Fatal(err)
	}
	execute(t, path, "PRAGMA auto_vacuum = INCREMENTAL", string(old), "PRAGMA application_id = 0x524c4159", "PRAGMA user_version = 8",
		"INSERT INTO setting VALUES ('secret', randomblob(32)), ('keys_version', 3), ('indexed_upto', 0), ('start', x''), ('last_position', 4097), ('clock', 0)",
		"INSERT INTO mecha (id, address, created_at, revision) VALUES (1, 'old^timer', 1, 4096), (2, 'her^friend', 1, 4097)",
		"INSERT INTO word (id, text) VALUES (1, 'a-label')", "INSERT INTO dormant (conversation, since) VALUES (-1, 1)",
		"INSERT INTO participant VALUES (-1, 2), (-1, 1)")
	wantWholeOf(t, path, schema(t), 8, 0)
	d, err := file.OpenCurrent(path, schema(t), true)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if n := number(t, path, "SELECT count(*) FROM participant WHERE conversation = -1 AND mecha IN (1, 2)"); n != 2 {
		t.Errorf("%d participants are left, want 2", n)
	}
	execute(t, path, "DELETE FROM mecha WHERE id = 2")
	wantWholeOf(t, path, schema(t), file.CurrentSchema(), 0)
}

// A file of the eighth schema is made from the text of that schema. It has a row for each word that
// was learned, and exchanges that wait to be counted.
func TestAFileOfTheEighthSchemaIsBroughtUpToDate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "relay.db")
	old, err := os.ReadFile("testdata/schema-8.sql")
	if err != nil {
		t.Fatal(err)
	}
	share := "0000ff80" + "7f0a0d00" + "8008" + "c0d11c" // crew, sender, one exchange, the hour 469184
	other := "01000000" + "02000000" + "8008" + "c0d11c"
	many := ""
	for i := range 20 { // so that their length takes two bytes
		many += fmt.Sprintf("%08x%08x8008c0d11c", 7, i)
	}
	execute(t, path, "PRAGMA auto_vacuum = INCREMENTAL", string(old), "PRAGMA application_id = 0x524c4159", "PRAGMA user_version = 8",
		"INSERT INTO setting VALUES ('secret', randomblob(32)), ('keys_version', 3), ('indexed_upto', 0), ('start', x''), ('last_position', 0), ('clock', 0)",
		"INSERT INTO mecha (id, address, created_at, revision) VALUES (1, 'old^timer', 1, 4096), (2, 'new^timer', 1, 8192), (3, 'quiet^timer', 1, 12288)",
		"INSERT INTO learner VALUES (1, 16384, 2048, 469184, 3, 0), (2, 20480, 1024, 469184, 1, 0), (3, 24576, 0, 0, 0, 1)",
		"INSERT INTO learned VALUES (1, 'zürich', x'"+share+"'), (1, 'book', x'"+many+"'), (1, 'flight', x'"+share+other+"'), (2, 'book', x'"+other+"')",
		"INSERT INTO mecha (id, address, created_at, revision) VALUES (4, 'wise^timer', 1, 32769)", "INSERT INTO learner VALUES (4, 32769, 1024, 469184, 1900, 0)",
		"WITH RECURSIVE n (value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < 1900) INSERT INTO learned SELECT 4, printf('many%05d', value), x'"+other+"' FROM n",
		"INSERT INTO exchange VALUES (28672, 2, 1, 1, 469184, 'book'), (32768, 1, 2, 1, 469184, 'book'||char(10)||'hotel')")
	wantWholeOf(t, path, schema(t), 8, 0)
	d, err := db.Open(db.Options{Path: path, Schema: schema(t), LearnHalfLife: relay.DefaultHalfLife})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	said := func() (all []string) {
		t.Helper()
		learned, err := d.Learned(t.Context(), 0, 10)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range learned {
			if l.Mecha == 4 {
				l.Words = nil // too many
			}
			for _, w := range l.Words {
				all = append(all, fmt.Sprintf("%d %s %.0f %d", l.Mecha, w.Word, w.Weight, w.Crews))
			}
		}
		return all
	}
	if got, want := said(), []string{"1 book 5 1", "1 flight 2 2", "1 zürich 1 1", "2 book 1 1"}; !slices.Equal(got, want) {
		t.Errorf("learned %q, want %q", got, want)
	}
	wantWholeOf(t, path, schema(t), file.CurrentSchema(), 0)
	if _, err := d.Apply(&relay.CountExchanges{At: time.Unix(469184*3600, 0), HalfLife: relay.DefaultHalfLife, Most: 10}); err != nil {
		t.Fatal(err)
	}
	if got, want := said(), []string{"1 book 6 2", "1 flight 2 2", "1 hotel 1 1", "1 zürich 1 1", "2 book 2 2"}; !slices.Equal(got, want) {
		t.Errorf("with the exchanges that waited: %q, want %q", got, want)
	}
	if n := number(t, path, "SELECT count(*) FROM exchange"); n != 0 {
		t.Errorf("%d exchanges wait", n)
	}
	// What is forgotten now stands nowhere in the file, not even where the old tables were.
	for _, a := range []relay.Address{"old^timer", "new^timer", "wise^timer"} {
		if err := d.ForgetLearned(&relay.ForgetLearned{At: time.Now(), Address: a}); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"zürich", "book", "flight", "hotel", "many0"} {
		if bytes.Contains(text, []byte(word)) {
			t.Errorf("%q is still in the file", word)
		}
	}
	wantWholeOf(t, path, schema(t), file.CurrentSchema(), 0)
	if n := number(t, path, "SELECT (SELECT count(*) FROM replica) + (SELECT count(*) FROM origin) + (SELECT count(*) FROM entry_nonce)"); n != 0 {
		t.Errorf("it has %d rows about a log", n)
	}
}

// A file of the ninth schema is made from the text of that schema. What was learned stays, and so does
// the order of its rows.
func TestAFileOfTheNinthSchemaIsBroughtUpToDate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "relay.db")
	old, err := os.ReadFile("testdata/schema-9.sql")
	if err != nil {
		t.Fatal(err)
	}
	counts := func(words ...string) (row string) { // each with one exchange
		for _, word := range words {
			row += fmt.Sprintf("%02x%x0d000000070000000980"+"08c0d11c", len(word), word)
		}
		return "x'" + row + "'"
	}
	execute(t, path, "PRAGMA auto_vacuum = INCREMENTAL", string(old), "PRAGMA application_id = 0x524c4159", "PRAGMA user_version = 9",
		"INSERT INTO setting VALUES ('secret', randomblob(32)), ('keys_version', 3), ('indexed_upto', 0), ('start', x''), ('last_position', 0), ('clock', 0), ('words_indexed_upto', 0)",
		"INSERT INTO mecha (id, address, created_at, revision) VALUES (1, 'old^timer', 1, 4096), (2, 'new^timer', 1, 8192)",
		"INSERT INTO learner VALUES (1, 16384, 1024, 469184, 3, 0), (2, 20480, 1024, 469184, 1, 0)",
		"INSERT INTO learned VALUES (2, '', 1, "+counts("zebra")+"), (1, 'flight', 1, "+counts("flight")+"), (1, '', 2, "+counts("book", "carry")+")")
	wantWholeOf(t, path, schema(t), 9, 0)
	d, err := db.Open(db.Options{Path: path, Schema: schema(t), LearnHalfLife: relay.DefaultHalfLife})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	learned, err := d.Learned(t.Context(), 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, l := range learned {
		for _, w := range l.Words {
			said = append(said, fmt.Sprintf("%d %s %.0f", l.Mecha, w.Word, w.Weight))
		}
	}
	if want := []string{"1 book 1", "1 carry 1", "1 flight 1", "2 zebra 1"}; !slices.Equal(said, want) {
		t.Errorf("learned %q, want %q", said, want)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	wantWholeOf(t, path, schema(t), file.CurrentSchema(), 0)
	if n := number(t, path, "SELECT count(*) FROM sqlite_schema WHERE name = 'learned' AND sql LIKE '%WITHOUT ROWID%'"); n != 0 {
		t.Error("the table is as it was")
	}
}

// execute changes a file by SQLite alone.
func execute(t *testing.T, path string, statements ...string) {
	t.Helper()
	d, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, s := range statements {
		if _, err := d.Exec(s); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAnOlderFileIsBroughtUpToDate(t *testing.T) {
	path, id := mustMakeOlder(t)
	older := file.CurrentSchema()
	defer file.Pretend(step + " INSERT INTO pretended SELECT id, id FROM mecha;")()
	if _, err := db.Inspect(path); err == nil || !strings.Contains(err.Error(), "written by an older relay") {
		t.Errorf("a look into the file before: %v", err)
	}
	wantWhole(t, path, schema(t)+step, older)
	d := mustOpen(t, path, schema(t)+step)
	k, err := d.Issue(&relay.IssueKey{At: time.Now(), Address: "old^timer"})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := d.Message(t.Context(), k.Mecha.Number, id); err != nil || m.To != "old^timer" {
		t.Errorf("the message in it is %+v, %v", m, err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if n := number(t, path, "SELECT count(*) FROM pretended"); n != 1 {
		t.Errorf("the step brought %d rows", n)
	}
	wantWhole(t, path, schema(t)+step, older+1) // with the schema of a new file
}

// An upgrade that fails leaves the file as it was, with its version.
func TestAStepThatFailsChangesNothing(t *testing.T) {
	path, _ := mustMakeOlder(t)
	older := file.CurrentSchema()
	undo := file.Pretend(step + " INSERT INTO nowhere VALUES (1);")
	if _, err := db.Open(db.Options{Path: path, Schema: schema(t) + step}); err == nil {
		t.Error("it was opened")
	}
	undo()
	wantWhole(t, path, schema(t), older)
}

// A command of a newer relay must not change the file under an older one that serves it.
func TestAnOlderFileThatIsServedIsLeftAlone(t *testing.T) {
	d := mustOpen(t, filepath.Join(t.TempDir(), "relay.db"), schema(t))
	older := int(file.CurrentSchema())
	defer file.Pretend(step)()
	if !*long {
		defer file.HurryLocks(3)() // the server's lock is kept
	}
	_, err := db.Open(db.Options{Path: d.Path(), Schema: schema(t) + step})
	if err == nil || !strings.Contains(err.Error(), "older relay") {
		t.Errorf("%v", err)
	}
	if v := number(t, d.Path(), "PRAGMA user_version"); v != older {
		t.Errorf("it is of version %d now", v)
	}
}
