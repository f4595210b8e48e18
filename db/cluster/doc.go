//go:build cluster

// Package cluster is a log that several machines share (replication.Log): an embedded NATS server
// on each, and one JetStream stream with three copies. Only this package knows NATS. Programs
// have it with the build tag cluster.
//
// # The log
//
// An entry is a message of the stream. Append returns once the stream's leader has it from a
// majority of the copies, each of which syncs every write. So every acknowledged write is on two
// disks. The leader then publishes the entry again, on a subject that all nodes hear (Follow). A
// node reads entries that it does not hear from its own copy of the stream. It uses no consumer
// of JetStream, because a consumer would live on one machine and fail with it.
//
// # Heartbeats and the lease
//
// Each node sends the others its store's position four times a second (heartbeat.go). From that a
// node knows that it is not cut off (Fresh, lease.go), who issues maintenance writes (KeepsLog),
// and that the stores have decided alike.
//
// # Who may vote
//
// A node that starts has no part of the log until the others have said that its disk is not older
// than they have known it (admit.go).
//
// # Who may connect
//
// Nodes speak by mutual TLS. The cluster file (File) has the key of the authority that all
// certificates come from, so it is as secret as a key of each node. NATS also listens on the
// loopback interface, for a password that is made at each start and that nobody learns: without
// a listener for clients its routes do not start.
package cluster
