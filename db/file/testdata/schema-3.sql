-- The relay's store: one SQLite file, written by one connection, read by many.
-- This is the whole schema of a new file, at PRAGMA user_version 3. A change
-- here needs a script in upgrades (db/file/schema.go) that changes older files
-- in the same way.
--
-- The tables of the first part have only rows that writes made: the same writes
-- in the same order give the same rows. The tables of the second part are local
-- to the process: notes, and shortcuts that can be made again.
--
-- Times are Unix milliseconds. A "position" is a place in the commit order
-- (upper bits: the millisecond of acceptance; lower 12 bits: a counter). Strings
-- that recur are stored once, in `word` or `mecha`, and referred to by number.
-- References are declared for readers and for integrity checks. The writer keeps
-- them by its own rules, because enforcement would cost time for every message.

-- The store's settings. `secret` keys ids and hashes. `keys_version` grows
-- whenever keys change, so that a server notices changes by the command line.
-- `indexed_upto` is local: up to that position, `received` and `sent` have all
-- messages. `start` is local, too: a random mark of the last start of a server, which
-- its ring of nonces has as well; empty before the first one.
CREATE TABLE setting (
  name  TEXT NOT NULL PRIMARY KEY,
  value ANY NOT NULL
) STRICT, WITHOUT ROWID;

-- The registered agents. NOCASE refuses addresses that differ in letter case
-- alone. `revision` is the position of the last change to the Mecha or its
-- profile; the search index follows it. A removed Mecha keeps its row, because
-- its messages refer to it.
CREATE TABLE mecha (
  id         INTEGER PRIMARY KEY,
  address    TEXT NOT NULL COLLATE NOCASE UNIQUE,
  created_at INTEGER NOT NULL,
  revision   INTEGER NOT NULL DEFAULT 0,
  removed_at INTEGER
) STRICT;

CREATE INDEX mecha_revision ON mecha (revision);

-- A Mecha's profile, as JSON. `card` is the agent card that it came from.
CREATE TABLE profile (
  mecha      INTEGER PRIMARY KEY REFERENCES mecha (id),
  body       TEXT NOT NULL,
  card       TEXT,
  visibility INTEGER NOT NULL,  -- 0 public, 1 crew, 2 unlisted
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL
) STRICT;

-- The nonces of the latest writes to profiles. They are not in `profile`, because
-- the next write replaces that row, and the earlier request must not become
-- repeatable.
CREATE TABLE profile_nonce (
  position INTEGER PRIMARY KEY,
  nonce    INTEGER NOT NULL
) STRICT;

-- Credentials. The key's text is never stored, only its SHA-256. A separate
-- signing secret must be stored as it is, because an HMAC cannot be checked
-- without it. (That is why the file has the mode 0600.)
CREATE TABLE mecha_key (
  id           INTEGER PRIMARY KEY,
  public_id    TEXT NOT NULL UNIQUE,
  mecha        INTEGER NOT NULL REFERENCES mecha (id),
  hash         BLOB NOT NULL UNIQUE,
  secret       TEXT,
  label        TEXT NOT NULL,
  created_at   INTEGER NOT NULL,
  expires_at   INTEGER,
  revoked_at   INTEGER
) STRICT;

-- Finds the keys of a Mecha, as to tell when it was last seen.
CREATE INDEX mecha_key_mecha ON mecha_key (mecha);

-- Strings that recur: message types, priorities, versions, acknowledgement
-- words, and the conversation labels that clients brought.
CREATE TABLE word (
  id   INTEGER PRIMARY KEY,
  text TEXT NOT NULL UNIQUE
) STRICT;

-- One narrow row for each message, in commit order. The rowid is the position,
-- and the public id is a keyed function of it. So no index over random text is
-- needed, and an id is recognised even after its row is deleted.
CREATE TABLE message (
  position        INTEGER PRIMARY KEY,
  recipient       INTEGER NOT NULL REFERENCES mecha (id),
  sender          INTEGER NOT NULL REFERENCES mecha (id),
  open            INTEGER NOT NULL,  -- 1 while pending, then 0
  state           INTEGER NOT NULL,  -- 0 queued, 1 delivered, 2 acknowledged, 3 expired
  type            INTEGER NOT NULL REFERENCES word (id),
  priority        INTEGER NOT NULL REFERENCES word (id),
  version         INTEGER NOT NULL REFERENCES word (id),
  -- NULL: this message founded its conversation. Positive: the position of the
  -- founding message. Negative: minus the number of the word that is the
  -- client's label.
  conversation    INTEGER,
  correlation_id  TEXT,
  expires_at      INTEGER,
  sender_key      INTEGER NOT NULL REFERENCES mecha_key (id),
  signed          INTEGER NOT NULL,  -- 1 if the sender's signature was verified
  nonce           INTEGER NOT NULL,  -- keyed hash; a start reads it while the request could be replayed
  idempotency_key INTEGER,           -- keyed hash of sender and Idempotency-Key
  body_hash       INTEGER,           -- keyed hash of the body that came with the Idempotency-Key
  payload_bytes   INTEGER NOT NULL,
  payload_sha256  BLOB NOT NULL,
  delivered_at    INTEGER,
  acknowledged_at INTEGER,
  receipt         INTEGER REFERENCES receipt (position),  -- the latest of any kind
  ack             INTEGER REFERENCES receipt (position)   -- the latest acknowledgement
) STRICT;

-- These indexes cost nothing for messages without the column.
CREATE INDEX message_conversation ON message (conversation) WHERE conversation IS NOT NULL;
CREATE INDEX message_idempotency ON message (idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX message_expiry ON message (expires_at) WHERE expires_at IS NOT NULL AND open = 1;

-- The payload's exact bytes. They have a table of their own, so that lists and
-- acknowledgements need not read them.
CREATE TABLE payload (
  position INTEGER PRIMARY KEY REFERENCES message (position),
  body     BLOB NOT NULL
) STRICT;

-- The later life of messages: deliveries, acknowledgements, expiry. Rows are only
-- added. `previous` chains the receipts of one message.
CREATE TABLE receipt (
  position  INTEGER PRIMARY KEY,  -- in the same order as messages
  message   INTEGER NOT NULL REFERENCES message (position),
  previous  INTEGER REFERENCES receipt (position),
  state     INTEGER NOT NULL,     -- the message's state from here on
  status    INTEGER REFERENCES word (id),  -- NULL unless an acknowledgement
  client_ts TEXT,
  detail    TEXT,
  key       INTEGER REFERENCES mecha_key (id),  -- NULL if the message expired
  nonce     INTEGER
) STRICT;

-- How many acknowledgements that are not final a message has had since its first
-- acknowledgement. A message with fewer than two has no row.
CREATE TABLE progress (
  message INTEGER PRIMARY KEY REFERENCES message (position),
  acks    INTEGER NOT NULL
) STRICT;

-- The Mechas that have sent or received in a conversation, without the two of its
-- founding message.
CREATE TABLE participant (
  conversation INTEGER NOT NULL,
  mecha        INTEGER NOT NULL REFERENCES mecha (id),
  PRIMARY KEY (conversation, mecha)
) STRICT, WITHOUT ROWID;

-- The times of the clock at which writes got positions of later times, because the
-- clock had been ahead before: a row for each minute of such a time
-- (db/ahead_sql.go).
CREATE TABLE clock_ahead (
  position INTEGER PRIMARY KEY,
  at       INTEGER NOT NULL
) STRICT;

-- Local to the process
-- --------------------

-- The messages that a Mecha received, in commit order, pending messages before
-- the others, so that these are found and counted without reading the others.
-- It is an index of `message`. It is a table, so that the server can write it late
-- and in order: a page then changes once for many messages (db/mailbox.go). A
-- message after `indexed_upto` (see setting) may be missing here.
CREATE TABLE received (
  mecha    INTEGER NOT NULL,
  open     INTEGER NOT NULL,
  position INTEGER NOT NULL,
  PRIMARY KEY (mecha, open, position)
) STRICT, WITHOUT ROWID;

-- The messages that a Mecha sent, in commit order; written like `received`.
CREATE TABLE sent (
  mecha    INTEGER NOT NULL,
  position INTEGER NOT NULL,
  PRIMARY KEY (mecha, position)
) STRICT, WITHOUT ROWID;

-- The nonces of all writes after the position `after`, up to the row's own
-- position, 8 bytes each. They spare a start the reading of the rows of those
-- writes.
CREATE TABLE nonce_page (
  position INTEGER PRIMARY KEY,
  after    INTEGER NOT NULL,
  nonces   BLOB NOT NULL
) STRICT;

-- When a key was last used, to about a minute.
CREATE TABLE key_use (
  key          INTEGER PRIMARY KEY REFERENCES mecha_key (id),
  last_used_at INTEGER NOT NULL
) STRICT;

-- Notes of the messages that were written to sockets, for traces: with which key,
-- when, which message. A row has all notes since the transaction before, packed
-- (db/push_sql.go).
CREATE TABLE push (
  position INTEGER PRIMARY KEY,
  notes    BLOB NOT NULL
) STRICT;

-- The answers to searches: the newest 100 of each Mecha. An answer has its text
-- for an hour at most, and then an empty one.
CREATE TABLE search (
  position   INTEGER PRIMARY KEY,  -- local, not in the commit order, as in push
  id         TEXT NOT NULL UNIQUE,
  mecha      INTEGER NOT NULL REFERENCES mecha (id),
  expires_at INTEGER NOT NULL,
  answer     TEXT NOT NULL,
  nonce      INTEGER
) STRICT;

CREATE INDEX search_mecha ON search (mecha);
