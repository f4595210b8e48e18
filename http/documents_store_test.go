package http_test

import (
	"bytes"
	"database/sql"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"relay/db/relay"
)

// mustStand has the writer stand still, between two transactions, until goOn is called.
func (r *testRelay) mustStand() (goOn func()) {
	stands, end := make(chan struct{}), make(chan struct{})
	r.db.PutProfileThen(&relay.PutProfile{At: r.clock.Now(), Address: "nobody^here"}, func(error) { close(stands); <-end })
	<-stands
	return func() { close(end) }
}

// awaitQueued waits until n writes wait for the writer, which stands still.
func (r *testRelay) awaitQueued(n int) {
	r.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if waiting, _ := r.db.Queue(); waiting >= n {
			return
		}
		if time.Now().After(end) {
			r.t.Fatalf("never were %d writes waiting", n)
		}
	}
}

// file opens the database next to the server.
func (r *testRelay) file() *sql.DB {
	r.t.Helper()
	file, err := sql.Open("sqlite", "file:"+r.settings.db.Path)
	if err != nil {
		r.t.Fatal(err)
	}
	file.SetMaxOpenConns(1)
	if _, err := file.Exec("PRAGMA busy_timeout = 60000"); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { file.Close() })
	return file
}

func driveABrokenFile(t *testing.T, d *drive) {
	r := mustServe(t)
	alice, spare := r.alice() // alice's key has not been read
	var calls []*call
	for _, operation := range withKey(t) {
		calls = append(calls, alice.good(operation, spare))
	}
	if _, err := r.file().Exec("ALTER TABLE mecha_key RENAME TO lost"); err != nil {
		t.Fatal(err)
	}
	for i, operation := range withKey(t) {
		a := r.mustDo(calls[i])
		a.wantProblem(500, relay.Internal)
		d.hold(operation, calls[i], a)
	}
}

// waitsLess has a write wait less long for the lock of a file that is locked for good.
func waitsLess(s *settings) { s.db.LockWait = 2 * time.Second }

func driveALockedFile(t *testing.T, d *drive) {
	r := mustServe(t, waitsLess)
	alice, spare := r.alice()
	var calls []*call
	for _, operation := range writes {
		calls = append(calls, alice.good(operation, spare))
	}
	lock, goOn := r.file(), r.mustStand() // so that they are one transaction, which waits once
	var wg sync.WaitGroup
	for i, operation := range writes {
		wg.Go(func() {
			a, err := r.try(calls[i])
			if err != nil || a.status != 503 {
				t.Errorf("%s: %d %s %v", operation, a.status, a.body, err)
				return
			}
			d.hold(operation, calls[i], a)
		})
	}
	r.awaitQueued(len(writes))
	if _, err := lock.Exec("BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	goOn()
	wg.Wait()
	d.until(t, "GET /readyz", func() (*call, reply) { return &call{method: "GET", path: "/readyz"}, r.anyone("GET", "/readyz") }, relay.DatabaseLocked)
	if _, err := lock.Exec("ROLLBACK"); err != nil {
		t.Error(err)
	}
}

// until asks until an answer has the code.
func (d *drive) until(t *testing.T, operation string, ask func() (*call, reply), code relay.Code) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		c, a := ask()
		if strings.Contains(string(a.body), `"`+string(code)+`"`) {
			d.hold(operation, c, a)
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: never %s, at last %d %s", operation, code, a.status, a.body)
		}
	}
}

// driveADamagedFile has a store that has failed: a page of the file is not what it was.
func driveADamagedFile(t *testing.T, d *drive) {
	r := mustServe(t)
	alice, spare := r.alice()
	var calls []*call
	for _, operation := range writes {
		calls = append(calls, alice.good(operation, spare))
	}
	r.mustDamage()
	for i, operation := range writes {
		a := r.mustDo(calls[i])
		a.wantProblem(500, relay.StoreFailed)
		d.hold(operation, calls[i], a)
	}
	d.hold("GET /readyz", &call{method: "GET", path: "/readyz"}, r.anyone("GET", "/readyz"))
}

// mustDamage restarts the relay on a file in which sends find a broken page.
func (r *testRelay) mustDamage() {
	r.t.Helper()
	r.stop()
	file := r.file()
	var page, size int64
	if err := file.QueryRow("SELECT rootpage, (SELECT page_size FROM pragma_page_size) FROM sqlite_master WHERE name = 'payload'").Scan(&page, &size); err != nil {
		r.t.Fatal(err)
	}
	file.Close()
	raw, err := os.OpenFile(r.settings.db.Path, os.O_WRONLY, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := raw.WriteAt(bytes.Repeat([]byte{0xff}, int(size)), (page-1)*size); err != nil {
		r.t.Fatal(err)
	}
	if err := raw.Close(); err != nil {
		r.t.Fatal(err)
	}
	r.start()
}
