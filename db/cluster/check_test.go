//go:build cluster

package cluster

import _ "relay/db/file/check" // file.Check of these tests knows all rules
