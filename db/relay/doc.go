// Package relay is the vocabulary of the relay with its rules: addresses, keys and signatures, messages and
// their states, positions and ids, acknowledgements, profiles, searches, times, and the refusals that clients
// get (Error, Code).
//
// It also has the writes. A Write, such as SendMessage or Acknowledge, is a change to the store as a value.
// AppendWrite and ReadWrite convert it to and from its serial form. Read reads a write from a client's JSON,
// and Validate checks its fields.
//
// The package does not know SQL, files, HTTP or sockets, and it imports only package strict and the standard
// library. Package db applies the writes and reads the store; http, ws, search and http/client use the
// vocabulary.
//
// A change begins here if it is
//
//   - a write: write.go and the file of its noun, then its room (Kinds), RulesOf and, for the audit log,
//     act.go. A setting that decides it is copied into a field of the write. A new field comes last, after
//     since, with the next writeVersion. If a write changes what it does, raise newestRules (db/replication).
//   - a limit with its code: error.go, then its room, http/problem.go, http/documents and http/docs/protocol.md.
//   - a state of a message: message.go, then schema.sql and the code that names states: db/internal/progress,
//     db/internal/messages/filter_sql.go, db/file/check.
//
// "PROTOCOL §3, Send" cites a section of http/docs/protocol.md.
package relay
