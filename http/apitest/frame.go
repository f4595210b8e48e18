package apitest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// maxShort is how many frames of a kind are validated with -short: the race detector
// makes that ten times slower, and some tests mind.
const maxShort = 500

// CheckFrame holds a frame of the relay against the AsyncAPI document, and counts it. It returns the first
// difference, or "".
func CheckFrame(text []byte) string {
	var f struct{ Type, Code string }
	if err := json.Unmarshal(text, &f); err != nil {
		return err.Error()
	}
	a := described()
	if a == nil {
		return ""
	}
	schema := a.frames[f.Type]
	if schema == nil || ofClients[f.Type] {
		return fmt.Sprintf("frames of type %q are not described", f.Type)
	}
	if n := counted.frame(f.Type, f.Code); testing.Short() && n > maxShort {
		return ""
	}
	if err := validate(schema, text); err != nil {
		return err.Error()
	}
	return ""
}

// ofClients are the types of the frames that clients send.
var ofClients = map[string]bool{"ack": true, "send": true}

// CheckTaken holds a client's frame, which the relay has accepted, against the AsyncAPI document.
// It returns the first difference, or "".
func CheckTaken(kind string, text []byte) string {
	a := described()
	if a == nil {
		return ""
	}
	if n := counted.frame(kind, ""); testing.Short() && n > maxShort {
		return ""
	}
	if err := validate(a.frames[kind], text); err != nil {
		return err.Error()
	}
	return ""
}

// CheckClose reports whether a close code of the relay is described. It counts it.
func CheckClose(code int) bool {
	counted.frame("close", strconv.Itoa(code))
	a := described()
	return a == nil || a.closeCodes[code]
}

// counts is what was checked in this process.
type counts struct {
	mu        sync.Mutex
	exchanges int
	answers   map[string]map[string]int // by operation, then status and code
	frames    map[string]int            // by type
	details   map[string]map[string]int // codes of frames of a type
}

var counted = counts{answers: map[string]map[string]int{}, frames: map[string]int{},
	details: map[string]map[string]int{}}

func (c *counts) exchange(operation string, status int, code string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.exchanges++
	add(c.answers, operation, strings.TrimSpace(strconv.Itoa(status)+" "+code))
}

// frame counts a frame, and returns how many of its kind came.
func (c *counts) frame(kind, code string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frames[kind]++
	if code != "" {
		add(c.details, kind, code)
	}
	return c.frames[kind]
}

func add(to map[string]map[string]int, a, b string) {
	if to[a] == nil {
		to[a] = map[string]int{}
	}
	to[a][b]++
}

// Summary says what was checked in this process.
func Summary() string {
	c := &counted
	c.mu.Lock()
	defer c.mu.Unlock()
	var b strings.Builder
	kinds := 0
	for _, all := range c.answers {
		kinds += len(all)
	}
	if c.exchanges > 0 {
		fmt.Fprintf(&b, "held against /openapi.json: %d exchanges, of %d operations, with %d different pairs of operation "+
			"and answer\n", c.exchanges, len(c.answers), kinds)
	}
	if len(c.frames) > 0 {
		of := ""
		if testing.Short() {
			of = fmt.Sprintf(" (of each kind the first %d)", maxShort)
		}
		fmt.Fprintf(&b, "held against /asyncapi.json%s:", of)
		for _, kind := range slices.Sorted(maps.Keys(c.frames)) {
			fmt.Fprintf(&b, " %d %s", c.frames[kind], kind)
			if d := c.details[kind]; d != nil {
				fmt.Fprintf(&b, " (%s)", strings.Join(slices.Sorted(maps.Keys(d)), " "))
			}
		}
		fmt.Fprintln(&b)
	}
	return b.String()
}
