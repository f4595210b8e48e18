package file

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"relay/db/internal/sqlite"
	"relay/db/lock"
)

const applicationID = 0x524c4159 // "RLAY", in the file's header

// upgrades[n] is the script that brings a file of user_version n+1 to n+2. After all
// of them, a file has the schema of schema.sql. A released script is never changed.
var upgrades = []string{
	"CREATE TABLE clock_ahead (position INTEGER PRIMARY KEY, at INTEGER NOT NULL) STRICT",
	`CREATE TABLE progress (
  message INTEGER PRIMARY KEY REFERENCES message (position),
  acks    INTEGER NOT NULL
) STRICT`,
	// All that refers to a word or an ended key may be as new as the newest row.
	`CREATE TABLE kept_nonce (position INTEGER PRIMARY KEY, nonce INTEGER NOT NULL) STRICT;
INSERT INTO kept_nonce SELECT position, nonce FROM profile_nonce;
DROP TABLE profile_nonce;
ALTER TABLE word ADD COLUMN used INTEGER NOT NULL DEFAULT 0;
ALTER TABLE mecha_key ADD COLUMN ended INTEGER;
INSERT INTO setting (name, value) SELECT 'last_position', max(
  coalesce((SELECT max(position) FROM message), 0), coalesce((SELECT max(position) FROM receipt), 0),
  coalesce((SELECT max(position) FROM kept_nonce), 0), coalesce((SELECT max(revision) FROM mecha), 0));
UPDATE word SET used = (SELECT value FROM setting WHERE name = 'last_position');
UPDATE mecha_key SET ended = (SELECT value FROM setting WHERE name = 'last_position') WHERE revoked_at IS NOT NULL;
INSERT INTO setting (name, value) VALUES ('clock', 0);
CREATE INDEX message_expired ON message (expires_at) WHERE state = 3;
CREATE INDEX participant_mecha ON participant (mecha);
CREATE TABLE dormant (
  conversation INTEGER PRIMARY KEY,
  since        INTEGER NOT NULL,
  sender       INTEGER REFERENCES mecha (id),
  recipient    INTEGER REFERENCES mecha (id)
) STRICT;
CREATE INDEX dormant_since ON dormant (since);
CREATE TABLE unlisted (
  position  INTEGER PRIMARY KEY,
  recipient INTEGER NOT NULL,
  sender    INTEGER NOT NULL
) STRICT;
CREATE TABLE prune (
  id       INTEGER PRIMARY KEY,
  asked_at INTEGER NOT NULL,
  before   INTEGER NOT NULL,
  messages INTEGER NOT NULL DEFAULT 0,
  bytes    INTEGER NOT NULL DEFAULT 0,
  kept     INTEGER NOT NULL DEFAULT 0,
  ended_at INTEGER
) STRICT`,
	`CREATE TABLE audit (
  id      INTEGER PRIMARY KEY,
  at      INTEGER NOT NULL,
  uid     INTEGER,           -- NULL on a system whose users have no numbers
  user    TEXT NOT NULL,     -- empty if it was not known
  command TEXT NOT NULL,     -- as in 'key create'
  what    TEXT NOT NULL,     -- as in 'key_issued'
  mecha   TEXT,              -- the address, as it was
  key     TEXT,              -- the public id
  detail  TEXT NOT NULL
) STRICT`,
	`ALTER TABLE message ADD COLUMN in_reply_to INTEGER;
ALTER TABLE message ADD COLUMN ack_by INTEGER;
ALTER TABLE message ADD COLUMN overdue INTEGER;
ALTER TABLE message ADD COLUMN traceparent TEXT;
ALTER TABLE message ADD COLUMN tracestate TEXT;
ALTER TABLE message ADD COLUMN broadcast INTEGER;
ALTER TABLE mecha_key ADD COLUMN broadcast INTEGER NOT NULL DEFAULT 0;
ALTER TABLE profile ADD COLUMN accept_from TEXT;
CREATE INDEX mecha_crew ON mecha (substr(address, instr(address, '^') + 1)) WHERE removed_at IS NULL;
CREATE INDEX message_reply ON message (in_reply_to) WHERE in_reply_to IS NOT NULL;
CREATE INDEX message_ack_by ON message (ack_by) WHERE ack_by IS NOT NULL AND open = 1 AND overdue IS NULL;
ALTER TABLE receipt ADD COLUMN notice INTEGER;
ALTER TABLE receipt ADD COLUMN until INTEGER;
CREATE TABLE attempt (
  message   INTEGER PRIMARY KEY REFERENCES message (position),
  recipient INTEGER NOT NULL REFERENCES mecha (id),
  number    INTEGER NOT NULL,
  until     INTEGER,
  key       INTEGER REFERENCES mecha_key (id),
  worker    TEXT,
  lease     INTEGER,
  since     INTEGER NOT NULL REFERENCES receipt (position),
  again     INTEGER
) STRICT;
CREATE INDEX attempt_until ON attempt (until) WHERE until IS NOT NULL;
CREATE INDEX attempt_recipient ON attempt (recipient, again);
CREATE INDEX attempt_free ON attempt (recipient) WHERE until IS NULL;
CREATE TABLE conversation_limit (
  conversation INTEGER PRIMARY KEY,
  founder      INTEGER NOT NULL,
  most         INTEGER,
  held         INTEGER NOT NULL,
  told         INTEGER NOT NULL
) STRICT`,
	`ALTER TABLE message ADD COLUMN sought TEXT;
ALTER TABLE search ADD COLUMN words TEXT;
ALTER TABLE search ADD COLUMN listed BLOB;
CREATE TABLE exchange (
  position  INTEGER PRIMARY KEY,
  recipient INTEGER NOT NULL REFERENCES mecha (id),
  sender    INTEGER NOT NULL REFERENCES mecha (id),
  completed INTEGER NOT NULL,
  hour      INTEGER NOT NULL,
  words     TEXT NOT NULL
) STRICT;
CREATE TABLE learner (
  mecha     INTEGER PRIMARY KEY REFERENCES mecha (id),
  position  INTEGER NOT NULL,
  exchanges INTEGER NOT NULL,
  hour      INTEGER NOT NULL,
  words     INTEGER NOT NULL,
  off       INTEGER NOT NULL
) STRICT;
CREATE INDEX learner_position ON learner (position);
CREATE TABLE learned (
  mecha  INTEGER NOT NULL REFERENCES mecha (id),
  word   TEXT NOT NULL,
  shares BLOB NOT NULL,
  PRIMARY KEY (mecha, word)
) STRICT, WITHOUT ROWID`,
	// All messages are indexed at once, also those after indexed_upto.
	`CREATE TABLE joined (
  conversation INTEGER NOT NULL,
  position     INTEGER NOT NULL,
  PRIMARY KEY (conversation, position)
) STRICT, WITHOUT ROWID;
CREATE TABLE reply (
  question INTEGER NOT NULL,
  position INTEGER NOT NULL,
  PRIMARY KEY (question, position)
) STRICT, WITHOUT ROWID;
INSERT INTO joined SELECT conversation, position FROM message WHERE conversation IS NOT NULL ORDER BY conversation, position;
INSERT INTO reply SELECT in_reply_to, position FROM message WHERE in_reply_to IS NOT NULL ORDER BY in_reply_to, position;
DROP INDEX message_conversation;
DROP INDEX message_reply`,
	// The server that starts next indexes the words, since SQL does not know their hashes. A Mecha has
	// all its learned words in one row at first, in the form of db/word_page.go. The next count splits it.
	`DROP INDEX participant_mecha;
ALTER TABLE participant RENAME TO old_participant;
CREATE TABLE participant (
  conversation INTEGER NOT NULL,
  mecha        INTEGER NOT NULL,
  PRIMARY KEY (conversation, mecha)
) STRICT, WITHOUT ROWID;
INSERT INTO participant SELECT conversation, mecha FROM old_participant ORDER BY conversation, mecha;
DROP TABLE old_participant;
CREATE TABLE old_word AS SELECT id, text, used FROM word;
DROP TABLE word;
CREATE TABLE word (
  id   INTEGER PRIMARY KEY,
  text TEXT NOT NULL,
  used INTEGER NOT NULL DEFAULT 0
) STRICT;
INSERT INTO word SELECT id, text, used FROM old_word ORDER BY id;
DROP TABLE old_word;
CREATE TABLE word_hash (
  hash INTEGER NOT NULL,
  word INTEGER NOT NULL,
  PRIMARY KEY (hash, word)
) STRICT, WITHOUT ROWID;
INSERT OR REPLACE INTO setting (name, value) VALUES ('words_indexed_upto', 0);
ALTER TABLE learned RENAME TO counted;
CREATE TABLE learned (
  mecha  INTEGER NOT NULL REFERENCES mecha (id),
  first  TEXT NOT NULL,
  words  INTEGER NOT NULL,
  counts BLOB NOT NULL,
  PRIMARY KEY (mecha, first)
) STRICT, WITHOUT ROWID;
INSERT INTO learned SELECT mecha, '', count(*), CAST(group_concat(
    CAST(unhex(CASE WHEN octet_length(word) < 128 THEN printf('%02x', octet_length(word))
      ELSE printf('%02x%02x', octet_length(word) & 127 | 128, octet_length(word) >> 7) END) AS TEXT) || word ||
    CAST(unhex(CASE WHEN length(shares) < 128 THEN printf('%02x', length(shares))
      ELSE printf('%02x%02x', length(shares) & 127 | 128, length(shares) >> 7) END) AS TEXT) || CAST(shares AS TEXT), '' ORDER BY word) AS BLOB)
  FROM counted GROUP BY mecha;
DROP TABLE counted;
ALTER TABLE exchange RENAME TO ended;
CREATE TABLE exchange (
  position INTEGER PRIMARY KEY,
  ended    TEXT NOT NULL
) STRICT;
INSERT INTO exchange SELECT position,
  concat_ws(' ', 0, recipient, sender, completed, hour, octet_length(words)) || char(10) || words || char(10) FROM ended;
DROP TABLE ended;
CREATE TABLE counting (
  id        INTEGER PRIMARY KEY CHECK (id = 1),
  upto      INTEGER NOT NULL,
  recipient INTEGER NOT NULL,
  position  INTEGER NOT NULL
) STRICT;
CREATE TABLE replica (
  id      INTEGER PRIMARY KEY CHECK (id = 1),
  log     BLOB NOT NULL,
  version INTEGER NOT NULL,
  applied INTEGER NOT NULL,
  at      INTEGER NOT NULL,
  last    INTEGER NOT NULL,
  hash    INTEGER NOT NULL
) STRICT;
CREATE TABLE origin (
  id      BLOB PRIMARY KEY,
  counter INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE entry_nonce (
  entry  INTEGER PRIMARY KEY,
  at     INTEGER NOT NULL,
  nonces BLOB NOT NULL
) STRICT`,
	`ALTER TABLE learned RENAME TO old_learned;
CREATE TABLE learned (
  mecha  INTEGER NOT NULL REFERENCES mecha (id),
  first  TEXT NOT NULL,
  words  INTEGER NOT NULL,
  counts BLOB NOT NULL,
  PRIMARY KEY (mecha, first)
) STRICT;
INSERT INTO learned SELECT mecha, first, words, counts FROM old_learned ORDER BY mecha, first;
DROP TABLE old_learned`,
}

// CurrentSchema is the schema version (PRAGMA user_version) of the files that this
// program writes.
func CurrentSchema() int64 { return 1 + int64(len(upgrades)) }

// Create makes an empty file that only its owner can read and write, and makes its
// name durable. It does nothing if the file exists. What root makes belongs to the owner of
// the folder, such as the user of a service.
func Create(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	sqlite.GiveToOwnerOf(filepath.Dir(path), f)
	if err := f.Close(); err != nil {
		return err
	}
	return sqlite.SyncDir(filepath.Dir(path))
}

// OpenCurrent opens the file for writing and brings its schema up to date in one
// transaction: an empty file gets all of schema.sql, an older file the missing
// upgrades. It refuses a file of another program or of a newer relay, without
// changing it. It also refuses an older file that is being served, because its server
// would fail. locked says that the caller has the server's lock. Errors name the path.
// The caller closes the connection.
func OpenCurrent(path, schema string, locked bool) (*sqlite.Conn, error) {
	if err := mustHaveOneName(path); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	info, err := infoAt(path)
	if err != nil {
		return nil, unreadable(path, err)
	}
	if _, err := info.steps(path, schema); err != nil {
		return nil, err
	}
	isCurrent := info.application == applicationID && info.Version == CurrentSchema()
	if !isCurrent && !info.empty && !locked {
		held, err := lockToUpgrade(path)
		if err != nil {
			return nil, err
		}
		defer held.Close()
	}
	r := sqlite.Writing
	if info.empty {
		r = sqlite.Creating
	}
	c, err := openPatiently(path, r)
	if err == nil {
		_, err = c.Row(nil, "SELECT 1 FROM sqlite_schema") // most faults show only at the first read
		if err != nil {
			c.Close()
		}
	}
	if err != nil {
		return nil, unreadable(path, err)
	}
	if isCurrent {
		return c, nil
	}
	if err := migrate(c, path, schema); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// lockToUpgrade takes the server's lock. It tries for a second, since another command
// may have the lock for a moment.
func lockToUpgrade(path string) (*Locked, error) {
	for tries := 0; ; tries++ {
		held, err := Lock(path)
		if !errors.Is(err, lock.ErrHeld) {
			return held, err
		}
		if tries == lockTries {
			return nil, fmt.Errorf("%s is being served by an older relay: stop that first, then relay serve of this one brings the file up to date", path)
		}
		time.Sleep(openPause)
	}
}

// openPatiently opens a file and tries again while it is busy: SQLite does not wait
// when two processes switch a new file to WAL at the same time.
func openPatiently(path string, r sqlite.Role) (*sqlite.Conn, error) {
	for tries := 0; ; tries++ {
		c, err := sqlite.Open(path, r)
		if err == nil || !sqlite.IsBusy(err) || tries == openTries {
			return c, err
		}
		time.Sleep(openPause)
	}
}

const (
	openTries = 200
	openPause = 25 * time.Millisecond
)

var lockTries = 40 // fewer in tests

// migrate brings a file to the current schema. What the steps drop is overwritten: a table that
// is made anew leaves copies of its rows behind, which nobody would ever find to forget them.
func migrate(c *sqlite.Conn, path, schema string) (err error) {
	if _, err := c.Row(nil, "PRAGMA secure_delete = ON"); err != nil {
		return err
	}
	defer func() {
		_, again := c.Row(nil, "PRAGMA secure_delete = FAST")
		err = cmp.Or(err, again)
	}()
	if err := c.BeginWrite(); err != nil {
		return err
	}
	if err := migrateTx(c, path, schema); err != nil {
		c.Rollback()
		return err
	}
	return c.Commit()
}

func migrateTx(c *sqlite.Conn, path, schema string) error {
	info, err := infoNow(c) // read again under the lock, since another process may have been faster
	if err != nil {
		return err
	}
	steps, err := info.steps(path, schema)
	if err != nil {
		return err
	}
	for _, step := range steps {
		if err := c.Script(step); err != nil {
			return fmt.Errorf("%s: schema: %w", path, err)
		}
	}
	if info.application == 0 {
		secret := make([]byte, 32)
		rand.Read(secret) // never fails (crypto/rand)
		if err := c.Exec("INSERT INTO setting (name, value) VALUES ('secret', ?), ('keys_version', 0), ('indexed_upto', 0), ('words_indexed_upto', 0), ('start', x''), ('last_position', 0), ('clock', 0)", secret); err != nil {
			return err
		}
	}
	return c.Script(fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d", applicationID, CurrentSchema()))
}

// newerError refuses a file that a newer relay wrote.
type newerError struct{ error }

// steps gives the scripts that bring a file to the current schema, or refuses the
// file: one of another program, or of a newer relay.
func (i Info) steps(path, schema string) ([]string, error) {
	switch {
	case i.application == applicationID && i.Version > CurrentSchema():
		return nil, newerError{fmt.Errorf("%s was written by a newer relay (schema %d; this one knows %d): use that one, or a newer one",
			path, i.Version, CurrentSchema())}
	case i.application == applicationID && i.Version >= 1:
		return upgrades[i.Version-1:], nil
	case i.application != 0 || i.Version != 0 || !i.empty:
		return nil, fmt.Errorf("%s is a database, but not relay's", path)
	}
	return []string{schema}, nil
}
