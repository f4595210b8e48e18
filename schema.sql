-- The relay's store: one SQLite file, written by one connection, read by many.
-- This is the whole schema of a new file, at PRAGMA user_version 1. A change
-- here needs a step in upgrades that brings older files to the same.
--
-- The tables of the first part hold what writes made, and nothing else: the same
-- writes in the same order give the same rows. The tables of the second part are
-- the process's own: notes, and shortcuts that can be made again.
--
-- Times are Unix milliseconds. A "position" is a place in the one commit order
-- (upper bits: the millisecond of acceptance; lower 12 bits: a counter). Strings
-- that recur stand once in `word` or `mecha` and are referred to by number.
-- References are declared for the reader and for integrity checks; the writer
-- keeps them by its own rules, for enforcement would cost every message.

-- What the store must know about itself. `secret` keys ids and hashes.
-- `keys_version` grows whenever keys change, so that a server notices what the
-- command line did. `indexed_upto` is the process's own: up to that position,
-- `received` and `sent` have all messages.
CREATE TABLE setting (
  name  TEXT NOT NULL PRIMARY KEY,
  value ANY NOT NULL
) STRICT, WITHOUT ROWID;

-- The participants. NOCASE makes look-alikes of an address collide. `revision`
-- is the position of the last change to the Mecha or its profile: the search
-- index follows it. A removed Mecha keeps its row, for its messages name it.
CREATE TABLE mecha (
  id         INTEGER PRIMARY KEY,
  address    TEXT NOT NULL COLLATE NOCASE UNIQUE,
  created_at INTEGER NOT NULL,
  revision   INTEGER NOT NULL DEFAULT 0,
  removed_at INTEGER
) STRICT;

CREATE INDEX mecha_revision ON mecha (revision);

-- What a Mecha says of itself, as JSON; `card` is the agent card it came from.
CREATE TABLE profile (
  mecha      INTEGER PRIMARY KEY REFERENCES mecha (id),
  body       TEXT NOT NULL,
  card       TEXT,
  visibility INTEGER NOT NULL,  -- 0 public, 1 crew, 2 unlisted
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL
) STRICT;

-- The nonces of what wrote profiles lately, apart: the next write replaces the
-- profile, and must not make the one before it repeatable.
CREATE TABLE profile_nonce (
  position INTEGER PRIMARY KEY,
  nonce    INTEGER NOT NULL
) STRICT;

-- Credentials. The key's text is never stored, only its SHA-256. A separate
-- signing secret, where one was asked for, has to be stored as it is: an HMAC
-- cannot be checked with less. (That is why the file is 0600.)
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

-- When a Mecha was last seen, for every hit of a search.
CREATE INDEX mecha_key_mecha ON mecha_key (mecha);

-- Strings that recur: message types, priorities, versions, acknowledgement
-- words, and the conversation labels that clients brought.
CREATE TABLE word (
  id   INTEGER PRIMARY KEY,
  text TEXT NOT NULL UNIQUE
) STRICT;

-- One narrow row a message, in commit order: the rowid is the position, and
-- the public id is a keyed function of it, so no index over random text is
-- needed and an id stays recognisable after its row has gone.
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
  -- message that did. Negative: minus the word that is the client's own label.
  conversation    INTEGER,
  correlation_id  TEXT,
  expires_at      INTEGER,
  sender_key      INTEGER NOT NULL REFERENCES mecha_key (id),
  signed          INTEGER NOT NULL,  -- 1 if the sender's signature was verified
  nonce           INTEGER NOT NULL,  -- keyed hash; read back at start while it is live
  idempotency_key INTEGER,           -- keyed hash of sender and Idempotency-Key
  body_hash       INTEGER,           -- keyed hash of the body it came with
  payload_bytes   INTEGER NOT NULL,
  payload_sha256  BLOB NOT NULL,
  delivered_at    INTEGER,
  acknowledged_at INTEGER,
  receipt         INTEGER REFERENCES receipt (position),  -- the latest of any kind
  ack             INTEGER REFERENCES receipt (position)   -- the latest acknowledgement
) STRICT;

-- These cost nothing for messages that do not use them.
CREATE INDEX message_conversation ON message (conversation) WHERE conversation IS NOT NULL;
CREATE INDEX message_idempotency ON message (idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX message_expiry ON message (expires_at) WHERE expires_at IS NOT NULL AND open = 1;

-- The payload's exact bytes, apart, so that lists and acknowledgements never touch them.
CREATE TABLE payload (
  position INTEGER PRIMARY KEY REFERENCES message (position),
  body     BLOB NOT NULL
) STRICT;

-- What happened to a message after it was accepted, append only: deliveries,
-- acknowledgements, expiry. `previous` chains the receipts of one message.
CREATE TABLE receipt (
  position  INTEGER PRIMARY KEY,  -- in the same order as messages
  message   INTEGER NOT NULL REFERENCES message (position),
  previous  INTEGER REFERENCES receipt (position),
  state     INTEGER NOT NULL,     -- the message's state from here on
  status    INTEGER REFERENCES word (id),  -- NULL unless an acknowledgement
  client_ts TEXT,
  detail    TEXT,
  key       INTEGER REFERENCES mecha_key (id),  -- NULL: the clock did it
  nonce     INTEGER
) STRICT;

-- Who has sent or received in a conversation, beyond the two of its founding message.
CREATE TABLE participant (
  conversation INTEGER NOT NULL,
  mecha        INTEGER NOT NULL REFERENCES mecha (id),
  PRIMARY KEY (conversation, mecha)
) STRICT, WITHOUT ROWID;

-- The process's own
-- -----------------

-- A mailbox in commit order, pending messages apart from the others: they are
-- found, counted and resumed without walking past what is done. It is an index of
-- `message`, and a table so that the server can write it late and in order: a
-- page then changes for many messages instead of for each (db/mailbox.go). A
-- message behind `indexed_upto` (see setting) may be missing here.
CREATE TABLE received (
  mecha    INTEGER NOT NULL,
  open     INTEGER NOT NULL,
  position INTEGER NOT NULL,
  PRIMARY KEY (mecha, open, position)
) STRICT, WITHOUT ROWID;

-- What a Mecha sent, in commit order; written like `received`.
CREATE TABLE sent (
  mecha    INTEGER NOT NULL,
  position INTEGER NOT NULL,
  PRIMARY KEY (mecha, position)
) STRICT, WITHOUT ROWID;

-- The nonces of all writes whose position is greater than `after`, up to this
-- one's, 8 bytes each: what a start would else read from their rows.
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

-- What was written to sockets, for tracing: one row for all that had been
-- since the transaction before, packed (db/push_sql.go): to whom, when, what.
CREATE TABLE push (
  position INTEGER PRIMARY KEY,
  notes    BLOB NOT NULL
) STRICT;

-- The answers to searches: the newest 100 of each Mecha, with their text for an
-- hour at most; what has lost it has an empty one.
CREATE TABLE search (
  position   INTEGER PRIMARY KEY,  -- in an order of this process's own, as that of push
  id         TEXT NOT NULL UNIQUE,
  mecha      INTEGER NOT NULL REFERENCES mecha (id),
  expires_at INTEGER NOT NULL,
  answer     TEXT NOT NULL,
  nonce      INTEGER
) STRICT;

CREATE INDEX search_mecha ON search (mecha);
