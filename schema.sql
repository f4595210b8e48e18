-- The relay's store: one SQLite file, written by one connection, read by many.
-- This is the whole schema of a new file, at PRAGMA user_version 1. A change
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
-- `last_position` is at least the greatest position of the rows that were removed: no
-- position is given out twice. The others are local. Up to `indexed_upto`, `received`,
-- `sent`, `joined` and `reply` have all messages; up to the number `words_indexed_upto`,
-- `word_hash` has all words. `start` is a random mark of the last
-- start of a server, which its ring of nonces has as well; empty before the first one.
-- `clock` is a time up to which a server has trusted the clock (db/internal/retention/clock_guard.go).
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

-- Finds the Mechas of a crew, the second half of their addresses, by their ids.
CREATE INDEX mecha_crew ON mecha (substr(address, instr(address, '^') + 1)) WHERE removed_at IS NULL;

-- A Mecha's profile, as JSON. `card` is the agent card that it came from. `accept_from`
-- repeats the field of the body: a JSON array of the addresses and crews that may write
-- to the Mecha; NULL: all may.
CREATE TABLE profile (
  mecha      INTEGER PRIMARY KEY REFERENCES mecha (id),
  body       TEXT NOT NULL,
  card       TEXT,
  visibility INTEGER NOT NULL,  -- 0 public, 1 crew, 2 unlisted
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  accept_from TEXT
) STRICT;

-- The nonces of the latest writes whose rows are gone: of writes to profiles, because
-- the next write replaces the row, and of removed messages and their receipts. The
-- earlier request must not become repeatable.
CREATE TABLE kept_nonce (
  position INTEGER PRIMARY KEY,
  nonce    INTEGER NOT NULL
) STRICT;

-- Credentials. The key's text is never stored, only its SHA-256. A separate
-- signing secret must be stored as it is, because an HMAC cannot be checked
-- without it. (That is why the file has the mode 0600.) `ended` is NULL while writes
-- may use the key; then it is the last position before its end, and no later row refers
-- to the key. With `broadcast`, the key may write to all crews.
CREATE TABLE mecha_key (
  id           INTEGER PRIMARY KEY,
  public_id    TEXT NOT NULL UNIQUE,
  mecha        INTEGER NOT NULL REFERENCES mecha (id),
  hash         BLOB NOT NULL UNIQUE,
  secret       TEXT,
  label        TEXT NOT NULL,
  created_at   INTEGER NOT NULL,
  expires_at   INTEGER,
  revoked_at   INTEGER,
  ended        INTEGER,
  broadcast    INTEGER NOT NULL DEFAULT 0
) STRICT;

-- Finds the keys of a Mecha, as to tell when it was last seen.
CREATE INDEX mecha_key_mecha ON mecha_key (mecha);

-- Strings that recur: message types, priorities, versions, acknowledgement
-- words, and the conversation labels that clients brought. `used` is the position of
-- the last use, or of one up to an hour before that. The row with the greatest id is
-- never removed, here and in `mecha` and `mecha_key`, so that no id gets a second
-- meaning. The writer gives no text two rows; `word_hash` finds the row of a text.
CREATE TABLE word (
  id   INTEGER PRIMARY KEY,
  text TEXT NOT NULL,
  used INTEGER NOT NULL DEFAULT 0
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
  ack             INTEGER REFERENCES receipt (position),  -- the latest acknowledgement
  in_reply_to     INTEGER,           -- the position of the message that this one answers
  ack_by          INTEGER,           -- the sender asked to be told if it is not acknowledged by then
  overdue         INTEGER,           -- 1 if the sender was told
  traceparent     TEXT,
  tracestate      TEXT,
  -- The first message of a broadcast says to how many Mechas it went. The others have the
  -- next positions, and neither its nonce nor its Idempotency-Key.
  broadcast       INTEGER,
  -- The words of the search by which the sender found the recipient, one a line, in the order
  -- of the alphabet; NULL once the message has its final acknowledgement, and without a search.
  sought          TEXT
) STRICT;

-- These indexes cost nothing for messages without the column.
CREATE INDEX message_idempotency ON message (idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX message_expiry ON message (expires_at) WHERE expires_at IS NOT NULL AND open = 1;
CREATE INDEX message_expired ON message (expires_at) WHERE state = 3;
CREATE INDEX message_ack_by ON message (ack_by) WHERE ack_by IS NOT NULL AND open = 1 AND overdue IS NULL;

-- The payload's exact bytes. They have a table of their own, so that lists and
-- acknowledgements need not read them.
CREATE TABLE payload (
  position INTEGER PRIMARY KEY REFERENCES message (position),
  body     BLOB NOT NULL
) STRICT;

-- The later life of messages: deliveries, acknowledgements, expiry, and what the relay
-- itself tells the sender. Rows are only added. `previous` chains the receipts of one
-- message.
CREATE TABLE receipt (
  position  INTEGER PRIMARY KEY,  -- in the same order as messages
  message   INTEGER NOT NULL REFERENCES message (position),
  previous  INTEGER REFERENCES receipt (position),
  state     INTEGER NOT NULL,     -- the message's state from here on
  status    INTEGER REFERENCES word (id),  -- NULL unless an acknowledgement
  client_ts TEXT,
  detail    TEXT,
  key       INTEGER REFERENCES mecha_key (id),  -- NULL if the relay itself made the receipt
  nonce     INTEGER,
  -- What the relay tells: 1 overdue, 2 the conversation is full, 3 claimed, 4 returned,
  -- 5 attempts spent; NULL: the receipt is of a client, or an expiry.
  notice    INTEGER,
  until     INTEGER               -- the end of a lease or a deferral that begins here
) STRICT;

-- The messages that a worker holds, that were deferred, or that were redelivered. A pending
-- message without a row is at its first attempt and free.
CREATE TABLE attempt (
  message   INTEGER PRIMARY KEY REFERENCES message (position),
  recipient INTEGER NOT NULL REFERENCES mecha (id),
  number    INTEGER NOT NULL,     -- 1 for the first attempt
  until     INTEGER,              -- the end of the lease, or of the deferral; NULL: the message is free
  key       INTEGER REFERENCES mecha_key (id),  -- who has the lease; NULL: nobody
  worker    TEXT,                 -- the name that the holder gave
  lease     INTEGER,              -- the length of the lease, in ms
  since     INTEGER NOT NULL REFERENCES receipt (position),
  again     INTEGER               -- where a deferral was over, after which sockets get it again; NULL: nowhere
) STRICT;

CREATE INDEX attempt_until ON attempt (until) WHERE until IS NOT NULL;
CREATE INDEX attempt_recipient ON attempt (recipient, again);
CREATE INDEX attempt_free ON attempt (recipient) WHERE until IS NULL;

-- How many acknowledgements that are not final a message has had after its first
-- acknowledgement. A message with fewer than two acknowledgements has no row.
CREATE TABLE progress (
  message INTEGER PRIMARY KEY REFERENCES message (position),
  acks    INTEGER NOT NULL
) STRICT;

-- The conversations that may hold only so many messages. `held` counts those that were
-- accepted, with those that were removed since. `most` is NULL if the founder set no limit:
-- then the limit is that of the server. `told` is 1 if the founder was told that the
-- conversation is full.
CREATE TABLE conversation_limit (
  conversation INTEGER PRIMARY KEY,  -- the position of its founding message, or minus the number of its label
  founder      INTEGER NOT NULL,     -- the position of the message whose sender is told
  most         INTEGER,
  held         INTEGER NOT NULL,
  told         INTEGER NOT NULL
) STRICT;

-- The Mechas that have sent or received in a conversation, without the two of its
-- founding message as long as that is there. A row may be left of a Mecha that is gone
-- from `mecha`: finding out which conversations a Mecha was in would take an index, which
-- was a quarter of what the messages of short conversations wrote.
CREATE TABLE participant (
  conversation INTEGER NOT NULL,
  mecha        INTEGER NOT NULL,
  PRIMARY KEY (conversation, mecha)
) STRICT, WITHOUT ROWID;

-- The conversations that have no message any more. A new message makes such a
-- conversation an ordinary one again; without one it ends some time after `since`, when
-- its last message was removed. If the founding message was that one, `sender` and
-- `recipient` are its parties.
CREATE TABLE dormant (
  conversation INTEGER PRIMARY KEY,
  since        INTEGER NOT NULL,
  sender       INTEGER REFERENCES mecha (id),
  recipient    INTEGER REFERENCES mecha (id)
) STRICT;

CREATE INDEX dormant_since ON dormant (since);

-- How far a round of counting has come: it counts the exchanges up to the position `upto`, by their
-- recipients and positions. `recipient` and `position` are those of the next one. Without a row, no
-- round is under way.
CREATE TABLE counting (
  id        INTEGER PRIMARY KEY CHECK (id = 1),
  upto      INTEGER NOT NULL,
  recipient INTEGER NOT NULL,
  position  INTEGER NOT NULL
) STRICT;

-- What completed exchanges have taught of a Mecha as a whole. `position` is that of the last
-- change; the search index follows it. `exchanges` is their weight as of `hour`, in 1/1024;
-- `words` counts the rows of `learned`. With `off` 1, the profile wants nothing to be learned.
-- Hours count from 1970.
CREATE TABLE learner (
  mecha     INTEGER PRIMARY KEY REFERENCES mecha (id),
  position  INTEGER NOT NULL,
  exchanges INTEGER NOT NULL,
  hour      INTEGER NOT NULL,
  words     INTEGER NOT NULL,
  off       INTEGER NOT NULL
) STRICT;

CREATE INDEX learner_position ON learner (position);

-- How often a word of a search and a Mecha that it found went together in an exchange that the
-- Mecha completed. A row has several words of a Mecha, so that a count changes few rows: those from
-- `first` on, up to the `first` of the next row. The first row of a Mecha has ''. `words` is how many
-- they are. `counts` has their texts (db/learning/word_page.go), and for each of them a part for each sender
-- (db/learning/shares.go): keyed hashes of its crew and of itself, which differ from word to word and from
-- Mecha to Mecha; a weight in 1/1024; the hour of the last exchange. The table has rowids: without
-- them SQLite would read the counts of a row wherever it compares its key.
CREATE TABLE learned (
  mecha  INTEGER NOT NULL REFERENCES mecha (id),
  first  TEXT NOT NULL,
  words  INTEGER NOT NULL,
  counts BLOB NOT NULL,
  PRIMARY KEY (mecha, first)
) STRICT;

-- The times at which writes got positions of later times, because the clock had
-- been ahead before. There is about one row for each minute of such a time
-- (db/internal/engine/ahead_sql.go).
CREATE TABLE clock_ahead (
  position INTEGER PRIMARY KEY,
  at       INTEGER NOT NULL
) STRICT;

-- The audit log: who changed keys or Mechas, or did something to the whole file, by
-- which command. Rows are only added; the newest 100,000 are kept.
CREATE TABLE audit (
  id      INTEGER PRIMARY KEY,
  at      INTEGER NOT NULL,
  uid     INTEGER,           -- NULL on a system whose users have no numbers
  user    TEXT NOT NULL,     -- empty if it was not known
  command TEXT NOT NULL,     -- as in 'key create'
  what    TEXT NOT NULL,     -- as in 'key_issued'
  mecha   TEXT,              -- the address, as it was
  key     TEXT,              -- the public id
  detail  TEXT NOT NULL
) STRICT;

-- The place of this copy in a log that several copies follow (package replication): one row. A file
-- that is its own log has none, and the two tables below are empty. A program without that
-- log must not change a file with this row.
CREATE TABLE replica (
  id      INTEGER PRIMARY KEY CHECK (id = 1),
  log     BLOB NOT NULL,     -- the name of the log, which its first copy has made up; each entry has it
  version INTEGER NOT NULL,  -- of the rules by which entries are applied
  applied INTEGER NOT NULL,  -- the number of the last entry whose writes this file has
  at      INTEGER NOT NULL,  -- the time of the last entry; it never falls
  last    INTEGER NOT NULL,  -- the last position in the commit order
  hash    INTEGER NOT NULL   -- of the refusals and positions up to that entry: where it differs, copies have decided differently
) STRICT;

-- The last number that each run of a node has given to an envelope that was applied. An
-- envelope with this number, or a smaller one, is not applied again.
CREATE TABLE origin (
  id      BLOB PRIMARY KEY,
  counter INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The nonces of the writes of an entry, 8 bytes each, also of those that were refused. They
-- are kept for as long as another node could get the same request.
CREATE TABLE entry_nonce (
  entry  INTEGER PRIMARY KEY,
  at     INTEGER NOT NULL,
  nonces BLOB NOT NULL
) STRICT;

-- Local to the process
-- --------------------

-- The exchanges that have ended, but are not yet counted in `learned`: messages that named a search.
-- Each goes within seconds, later only under load. All copies have the same exchanges, but
-- each has packed them in its own way: a row has those of a transaction (db/learning/exchange_sql.go).
-- `position` is that of the receipt that ended the first of them.
CREATE TABLE exchange (
  position INTEGER PRIMARY KEY,
  ended    TEXT NOT NULL
) STRICT;

-- The messages that a Mecha received, in commit order, pending messages before
-- the others, so that these are found and counted without reading the others.
-- It is an index of `message`. It is a table, so that the server can write it behind
-- and in order: a page then changes once for many messages (package mailbox). A
-- message after `indexed_upto` (see setting) may be missing here, and in the three tables
-- below.
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

-- The messages of a conversation besides its founding one, in commit order. `conversation`
-- is that of `message`. Written like `received`, except that the row of a removed message
-- goes with it.
CREATE TABLE joined (
  conversation INTEGER NOT NULL,
  position     INTEGER NOT NULL,
  PRIMARY KEY (conversation, position)
) STRICT, WITHOUT ROWID;

-- The messages that answer a message: `question` is their `in_reply_to`. Written like
-- `joined`.
CREATE TABLE reply (
  question INTEGER NOT NULL,
  position INTEGER NOT NULL,
  PRIMARY KEY (question, position)
) STRICT, WITHOUT ROWID;

-- The words by a keyed hash of their texts, in the place of an index of `word.text`. Written behind,
-- like `received` (package names): a word after `words_indexed_upto` may be missing here.
CREATE TABLE word_hash (
  hash INTEGER NOT NULL,
  word INTEGER NOT NULL,
  PRIMARY KEY (hash, word)
) STRICT, WITHOUT ROWID;

-- The removed messages whose rows in `received` (not pending) and `sent` are still to be
-- deleted, many at a time (db/internal/mailbox/unlist_sql.go). Reads skip these rows.
CREATE TABLE unlisted (
  position  INTEGER PRIMARY KEY,
  recipient INTEGER NOT NULL,
  sender    INTEGER NOT NULL
) STRICT;

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
-- (db/internal/progress/push_sql.go).
CREATE TABLE push (
  position INTEGER PRIMARY KEY,
  notes    BLOB NOT NULL
) STRICT;

-- The answers to searches: the newest 100 of each Mecha. An answer has its text
-- for an hour at most, and then an empty one. For a day, messages can name the search: so
-- long it has the words of the query, as in `message`, and the numbers of the Mechas that it
-- listed, as varints.
CREATE TABLE search (
  position   INTEGER PRIMARY KEY,  -- local, not in the commit order, as in push
  id         TEXT NOT NULL UNIQUE,
  mecha      INTEGER NOT NULL REFERENCES mecha (id),
  expires_at INTEGER NOT NULL,
  answer     TEXT NOT NULL,
  nonce      INTEGER,
  words      TEXT,
  listed     BLOB
) STRICT;

CREATE INDEX search_mecha ON search (mecha);
