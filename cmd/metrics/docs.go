package metrics

import "relay/http/docs"

// Other pages describe this ring, which has no page of its own.
func init() { docs.Register(docs.Ring{Name: "metrics"}) }
