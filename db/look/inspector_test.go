package look_test

import (
	"fmt"
	"testing"
	"time"

	"relay/db/dbtest"
	"relay/db/internal/engine"
	"relay/db/look"
)

// A read continues while another one takes long.
func TestAReadOfAnInspectorDoesNotWaitForALongOne(t *testing.T) {
	d := dbtest.Open(t)
	in, err := look.Inspect(d.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	done := make(chan error, 1)
	err = in.Point(t.Context(), func(*engine.Rx) error {
		go func() {
			_, err := in.ClockSeen()
			done <- err
		}()
		select {
		case err := <-done:
			return err
		case <-time.After(time.Minute):
			return fmt.Errorf("the second read waits for the first")
		}
	})
	if err != nil {
		t.Error(err)
	}
}

// After Close, a read is refused.
func TestAClosedInspectorRefuses(t *testing.T) {
	in, err := look.Inspect(dbtest.Open(t).Path())
	if err != nil {
		t.Fatal(err)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := in.ClockSeen(); err == nil {
		t.Error("it was not refused")
	}
	if _, err := in.Changed(); err == nil {
		t.Error("Changed was not refused")
	}
}
