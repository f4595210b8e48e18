package look_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"relay/db"
	"relay/db/dbtest"
	"relay/db/internal/engine"
	"relay/db/internal/sqlite"
	"relay/db/look"
)

// An Inspector has no way to the writer: no value that it has leads to one, and SQLite refuses each
// statement that writes on each of its connections, even on a file that no server has open.
func TestAnInspectorCannotWrite(t *testing.T) {
	if at := leadsTo(reflect.TypeFor[look.Inspector](), map[reflect.Type]bool{}); at != "" {
		t.Errorf("an Inspector leads to the writer: Inspector%s", at)
	}
	writes := writesOfTheStore(t)
	d := dbtest.Open(t)
	dbtest.Issue(t, d, "alice^demo")
	for _, served := range []bool{true, false} {
		if !served {
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
		}
		in, err := look.Inspect(d.Path())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := in.Changed(); err != nil { // opens the last of its connections
			t.Fatal(err)
		}
		refused := func(c *sqlite.Conn) {
			t.Helper()
			if c == nil {
				t.Fatal("there is no connection to try")
			}
			for _, text := range writes {
				if err := c.Exec(text); err == nil || !strings.Contains(err.Error(), "readonly") {
					t.Errorf("served %v: %s: %v", served, text, err)
				}
			}
		}
		if err := in.Point(t.Context(), func(x *engine.Rx) error { refused(x.C); return nil }); err != nil {
			t.Error(err)
		}
		refused(in.Watching())
		if err := in.Close(); err != nil {
			t.Error(err)
		}
	}
}

// leadsTo finds a way from a type, by its fields and elements, to what writes, or returns "".
func leadsTo(of reflect.Type, seen map[reflect.Type]bool) string {
	switch {
	case of == reflect.TypeFor[engine.Store]() || of == reflect.TypeFor[engine.Tx]() || of == reflect.TypeFor[db.DB]():
		return " is a " + of.Name()
	case seen[of]:
		return ""
	}
	seen[of] = true
	switch of.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Chan, reflect.Map:
		return leadsTo(of.Elem(), seen)
	case reflect.Struct:
		for n := range of.NumField() {
			if at := leadsTo(of.Field(n).Type, seen); at != "" {
				return "." + of.Field(n).Name + at
			}
		}
	}
	return ""
}

// writesOfTheStore lists the statements of the store that write, each in a form that SQLite accepts
// without further text, and some that it has not.
func writesOfTheStore(t *testing.T) []string {
	t.Helper()
	all := []string{"CREATE TABLE other (a)", "DROP TABLE message", "ALTER TABLE message ADD COLUMN a", "PRAGMA user_version = 1"}
	write := regexp.MustCompile(`^(INSERT|UPDATE|DELETE|REPLACE) `)
	var files []string
	for _, rooms := range []string{"../*_sql.go", "../internal/*/*_sql.go", "../learning/*_sql.go"} {
		some, err := filepath.Glob(rooms)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, some...)
	}
	for _, name := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if _, joined := n.(*ast.BinaryExpr); joined {
				return false // a part of a statement
			}
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
				if text, err := strconv.Unquote(l.Value); err == nil && write.MatchString(text) {
					all = append(all, regexp.MustCompile(`\?\d*`).ReplaceAllString(text, "NULL"))
				}
			}
			return true
		})
	}
	if len(all) < 30 {
		t.Fatalf("only %d statements were found", len(all))
	}
	return all
}
