package cmd

// The rings. A ring is one line here, the folder that the line names (its parent if it ends in /ring), and the
// tests in the root and next to that folder that begin with its name. A comment after the line, as in "with
// ws/feed", names further folders and files. Without all these the rest builds.
//
// Only rings may import these libraries. They are removed with the last ring:
//
//	cmd/child
//	cmd/internal/display
//	cmd/internal/remote
//	db/look/backlog
//	db/look/browse
//	http/client
import (
	_ "relay/cmd/a2a/ring"
	_ "relay/cmd/acme"
	_ "relay/cmd/agent"
	_ "relay/cmd/bench/ring"
	_ "relay/cmd/check" // with db/file/check db/check_test.go db/cluster/check_test.go
	_ "relay/cmd/clients"
	_ "relay/cmd/cluster" // with db/cluster db/replication http/documents_log_test.go
	_ "relay/cmd/compact" // with db/file/compact
	_ "relay/cmd/conformance/ring"
	_ "relay/cmd/console" // with http/console db/look/survey
	_ "relay/cmd/demo"
	_ "relay/cmd/dev"
	_ "relay/cmd/documents" // with http/documents http/client/documents_test.go ws/documents_test.go
	_ "relay/cmd/imports"
	_ "relay/cmd/inspect"
	_ "relay/cmd/learning" // with db/learning search/learned http/learning_test.go
	_ "relay/cmd/man"
	_ "relay/cmd/mcp/ring"
	_ "relay/cmd/metrics/ring"
	_ "relay/cmd/series" // with db/file/series
	_ "relay/cmd/setup/ring"
)
