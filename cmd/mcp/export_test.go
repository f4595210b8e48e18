package mcp

import "time"

// Hurry has sessions wait less for a relay that is silent when they start.
func Hurry() { firstQuestion = 200 * time.Millisecond }
