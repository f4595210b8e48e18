package sqlite_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"testing"

	"relay/db/internal/sqlite"
)

// mustFill makes a database with a table of n rows.
func mustFill(t testing.TB, n int) (path string, c *sqlite.Conn) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "relay.db")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := sqlite.Open(path, sqlite.Creating)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	err = c.Script("CREATE TABLE a (id INTEGER PRIMARY KEY, n INTEGER, name TEXT, body BLOB)")
	if err == nil {
		err = c.BeginWrite()
	}
	for id := range n {
		if err == nil {
			err = c.Exec("INSERT INTO a VALUES (?, ?, ?, ?)", int64(id), int64(7*id), "planner^acme", make([]byte, 200))
		}
	}
	if err == nil {
		err = c.Commit()
	}
	if err != nil {
		t.Fatal(err)
	}
	return path, c
}

const (
	oneRow   = "SELECT n, name, body FROM a WHERE id = ?"
	manyRows = "SELECT n, name, body FROM a WHERE id >= ? LIMIT 100"
)

// BenchmarkRows reads one row, or a hundred, by a connection of ours and by package
// database/sql with the same driver, both with prepared statements.
func BenchmarkRows(b *testing.B) {
	const n = 1000
	path, c := mustFill(b, n)
	pool, err := sql.Open("sqlite", "file:"+path+"?_pragma=query_only(1)")
	if err != nil {
		b.Fatal(err)
	}
	defer pool.Close()
	for _, q := range []struct{ name, text string }{{"1", oneRow}, {"100", manyRows}} {
		b.Run(q.name+"/ours", func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				rows, sum := c.Query(q.text, int64(i%(n-100))), 0
				for rows.Next() {
					sum += int(rows.Int(0)) + len(rows.Text(1)) + len(rows.Blob(2))
				}
				if err := rows.Close(); err != nil || sum == 0 {
					b.Fatal(sum, err)
				}
			}
		})
		s, err := pool.Prepare(q.text)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(q.name+"/database-sql", func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				rows, err := s.Query(i % (n - 100))
				if err != nil {
					b.Fatal(err)
				}
				sum := 0
				for rows.Next() {
					var number int64
					var name string
					var body sql.RawBytes
					if err := rows.Scan(&number, &name, &body); err != nil {
						b.Fatal(err)
					}
					sum += int(number) + len(name) + len(body)
				}
				if err := rows.Close(); err != nil || sum == 0 {
					b.Fatal(sum, err)
				}
			}
		})
	}
}
