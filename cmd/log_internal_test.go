package cmd

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A fault that repeats without end is logged at once, and then once a minute with its
// count.
func TestAFaultThatRepeatsIsLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log, end := (&app{stderr: &out}).logger(&settings{LogFormat: "text"})
		want := func(texts ...string) {
			t.Helper()
			synctest.Wait()
			lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
			if out.Len() == 0 {
				lines = nil
			}
			if len(lines) != len(texts) {
				t.Fatalf("want %d lines:\n%s", len(texts), out.String())
			}
			for i, text := range texts {
				if !strings.Contains(lines[i], text) {
					t.Errorf("line %d is %q, want %q", i, lines[i], text)
				}
			}
			out.Reset()
		}
		full := errors.New("the disk is full")
		log.Error("request failed", "request_id", 1, "error", full)
		want("the disk is full")
		for id := range 400 {
			log.Error("request failed", "request_id", id, "error", full)
			time.Sleep(100 * time.Millisecond)
		}
		log.Error("request failed", "error", errors.New("another fault"))
		log.Info("serving")
		log.Info("serving")
		want("another fault", "serving", "serving")
		time.Sleep(20 * time.Second)
		want("repeated=400")
		time.Sleep(2 * time.Minute) // and then it is over
		want()
		log.Error("request failed", "error", full)
		want("the disk is full")
		for id := range 1000 { // faults that are all different have a bound, too
			log.Warn("odd", "error", fmt.Sprint("fault ", id))
		}
		if n := strings.Count(out.String(), "odd"); n != mostKinds+1 {
			t.Errorf("%d lines of 1000", n)
		}
		out.Reset()
		end()
		want(fmt.Sprintf("repeated=%d", 1000-mostKinds-1))
		log.Error("last words")
		log.Error("last words")
		want("last words", "last words")
	})
}
