// Package relay has the words of the relay and their rules: addresses, keys and
// signatures, messages and their states, positions and ids, acknowledgements,
// profiles, searches, times, and the refusals that clients get (Error, Code).
//
// It also has the writes. A Write, such as SendMessage or Acknowledge, is a change
// to the store as a value. AppendWrite and ReadWrite give its serial form. Read
// reads a write from a client's JSON, and Validate checks its fields.
//
// The package does not know SQL, files, HTTP or sockets, and it imports only package
// strict and the standard library. Package db applies the writes and reads the
// store; http, ws, search and http/client use the words.
//
// "PROTOCOL §3, Send" cites a section of http/docs/protocol.md.
package relay
