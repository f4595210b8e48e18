package metrics

import "relay/http/docs"

// Other pages tell what this ring is: it has none of its own.
func init() { docs.Register(docs.Ring{Name: "metrics"}) }
