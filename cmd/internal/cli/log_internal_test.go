package cli

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// lines is a log that can be read while timers write to it.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// take empties the log.
func (l *lines) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.text.Reset()
	return slices.Collect(strings.Lines(l.text.String()))
}

// A fault that repeats without end is logged at once, and then once a minute with its
// count.
func TestAFaultThatRepeatsIsLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out lines
		log, end := (&App{Stderr: &out}).Logger("text", "")
		want := func(texts ...string) {
			t.Helper()
			synctest.Wait()
			got := out.take()
			if len(got) != len(texts) {
				t.Fatalf("want %d lines: %q", len(texts), got)
			}
			for i, text := range texts {
				if !strings.Contains(got[i], text) {
					t.Errorf("line %d is %q, want %q", i, got[i], text)
				}
			}
		}
		full := errors.New("the disk is full")
		log.Error("request failed", "request_id", 1, "error", full)
		want("the disk is full")
		for id := range 400 {
			log.Error("request failed", "request_id", id, "error", full)
			time.Sleep(100 * time.Millisecond)
		}
		Always(log).Error("request failed", "error", full)
		want("the disk is full")
		log.Error("request failed", "error", errors.New("another fault"))
		log.Info("serving")
		log.Info("serving")
		want("another fault", "serving", "serving")
		time.Sleep(20 * time.Second)
		want("repeated=400")
		time.Sleep(2 * time.Minute) // without the fault
		want()
		log.Error("request failed", "error", full)
		want("the disk is full")
		for id := range 1000 { // the number of faults that are told apart has a bound
			log.Warn("odd", "error", fmt.Sprint("fault ", id))
		}
		if n := len(out.take()); n != maxKinds+1 {
			t.Errorf("%d lines of 1000", n)
		}
		end()
		want(fmt.Sprintf("repeated=%d", 1000-maxKinds-1))
		log.Error("last words")
		log.Error("last words")
		want("last words", "last words")
	})
}

// In JSON, lengths of time and addresses are written as in text.
func TestValuesInJSONAreReadable(t *testing.T) {
	var out lines
	log, end := (&App{Stderr: &out}).Logger("json", "")
	defer end()
	log.Info("jumped", "by", 36*time.Hour, "addr", &net.TCPAddr{IP: net.IPv6loopback, Port: 9464}, "error", errors.New("why"), "n", 7)
	if got := out.take(); len(got) != 1 || !strings.Contains(got[0], `"level":"INFO","msg":"jumped","by":"36h0m0s","addr":"[::1]:9464","error":"why","n":7}`) {
		t.Errorf("%q", got)
	}
}
