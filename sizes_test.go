package main

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/format"
	"go/token"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// A size is what was counted in a place: a package, a file, a function or the core.
type size struct {
	place, of string
	n         int
}

// limits are the sizes that a place may have. A room is a package below db/internal or
// cmd/internal. An exported name is an identifier that a package declares at its top: a
// function, type, variable or constant; methods and fields do not count.
var limits = map[string]int{
	"lines of a room": 3000, "files of a room": 30, "names of a room": 30, "names of the engine": 60,
	"lines of a package": 4200, "files of a package": 32, // below db or cmd
	"lines of a file": 450, "lines of a function": 80,
	"long lines":        0, // of a package, above longest
	"hiding names":      0, // of a package, which hide an imported package
	"lines of the core": 40000,
}

// steps are how exact the list of debts is: so many lines come or go before it changes.
var steps = map[string]int{"lines of a room": 100, "lines of a package": 100, "lines of the core": 500, "long lines": 10}

// longest is how many columns a line may have; a tab is one.
const longest = 120

var update = flag.Bool("update", false, "lower the debts in debts_test.go to what they are, and write flags to the page on settings")

// A size above its limit is a debt, in debts_test.go. A debt may only fall: neither is
// it larger than the list says, nor smaller, so that the list falls with it.
func TestSizes(t *testing.T) {
	counted := count(t)
	var left []size
	for _, s := range counted {
		i := slices.IndexFunc(debts, func(d size) bool { return d.place == s.place && d.of == s.of })
		limit, step := limits[s.of], max(steps[s.of], 1)
		owed := (s.n + step - 1) / step * step
		switch {
		case s.n <= limit && i >= 0 && !*update:
			t.Errorf("%s: %d %s, no debt any more: remove it from debts_test.go (-update does)", s.place, s.n, s.of)
		case s.n <= limit:
		case i < 0:
			t.Errorf("%s: %d %s; at most %d may be. As a debt: {%q, %q, %d}", s.place, s.n, s.of, limit, s.place, s.of, owed)
		case owed > debts[i].n:
			left = append(left, debts[i])
			t.Errorf("%s: %d %s; %d is its debt, and at most %d may be", s.place, s.n, s.of, debts[i].n, limit)
		default:
			left = append(left, size{s.place, s.of, owed})
			if owed < debts[i].n && !*update {
				t.Errorf("%s: %d %s, no longer %d: lower it in debts_test.go (-update does)", s.place, s.n, s.of, debts[i].n)
			}
		}
	}
	for _, d := range debts {
		isThere := func(s size) bool { return s.place == d.place && s.of == d.of }
		if !slices.ContainsFunc(counted, isThere) && !isTakenOff(t, d.place) && !*update {
			t.Errorf("debts_test.go: %s has no %s: remove it (-update does)", d.place, d.of)
		}
	}
	if *update {
		writeDebts(t, left)
	}
}

func writeDebts(t *testing.T, left []size) {
	t.Helper()
	slices.SortFunc(left, func(a, b size) int { return cmp.Or(cmp.Compare(a.of, b.of), cmp.Compare(a.place, b.place)) })
	var text bytes.Buffer
	text.WriteString("package main\n\n// debts are the sizes that are still above their limits (TestSizes).\nvar debts = []size{\n")
	for _, d := range left {
		fmt.Fprintf(&text, "\t{%q, %q, %d},\n", d.place, d.of, d.n)
	}
	text.WriteString("}\n")
	formatted, err := format.Source(text.Bytes())
	if err == nil {
		err = os.WriteFile("debts_test.go", formatted, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// count measures all places.
func count(t *testing.T) (all []size) {
	sums, all := map[string]int{}, nil
	type key struct{ place, of string }
	of := map[key]int{}
	core := reached(t)
	for _, s := range sources(t) {
		lines := bytes.Count(s.text, []byte("\n"))
		all = append(all, size{s.file, "lines of a file", lines})
		all = append(all, functions(s)...)
		of[key{s.dir, "long lines"}] += longLines(s.text)
		for _, name := range hiding(s) {
			of[key{s.file + " " + name.Name, "hiding names"}]++
		}
		if core[s.dir] && s.file != ringsFile {
			sums["core"] += lines
		}
		switch isRoom := within(s.dir, "db/internal cmd/internal"); {
		case isRoom:
			of[key{s.dir, "lines of a room"}] += lines
			of[key{s.dir, "files of a room"}]++
			names := "names of a room"
			if s.dir == "db/internal/engine" {
				names = "names of the engine"
			}
			of[key{s.dir, names}] += exported(s.tree)
		case within(s.dir, "db cmd"):
			of[key{s.dir, "lines of a package"}] += lines
			of[key{s.dir, "files of a package"}]++
		}
	}
	for k, n := range of {
		all = append(all, size{k.place, k.of, n})
	}
	all = append(all, size{"core", "lines of the core", sums["core"]})
	slices.SortFunc(all, func(a, b size) int { return cmp.Or(cmp.Compare(a.of, b.of), cmp.Compare(a.place, b.place)) })
	return all
}

// reached returns the folders of the core: those that main imports, and what they import, without
// the rings. Packages that only tests, rings or people use are not among them.
func reached(t *testing.T) map[string]bool {
	t.Helper()
	imports, all := map[string][]string{}, rings(t)
	for _, s := range sources(t) {
		if s.file != ringsFile {
			imports[s.dir] = append(imports[s.dir], s.imports()...)
		}
	}
	core, next := map[string]bool{".": true}, []string{"."}
	for len(next) > 0 {
		dir := next[0]
		next = next[1:]
		for _, imported := range imports[dir] {
			if to, ours := strings.CutPrefix(imported, "relay/"); ours && !core[to] && ringOf(all, to) == "" {
				core[to], next = true, append(next, to)
			}
		}
	}
	return core
}

func longLines(text []byte) (n int) {
	for line := range bytes.Lines(text) {
		if utf8.RuneCount(bytes.TrimRight(line, "\r\n")) > longest {
			n++
		}
	}
	return n
}

// functions returns the functions of a file that have more lines than they may.
func functions(s source) (all []size) {
	ast.Inspect(s.tree, func(n ast.Node) bool {
		var name string
		switch f := n.(type) {
		case *ast.FuncDecl:
			name = f.Name.Name
		case *ast.FuncLit:
			name = fmt.Sprintf("func at %d", s.set.Position(f.Pos()).Line)
		default:
			return true
		}
		if lines := s.set.Position(n.End()).Line - s.set.Position(n.Pos()).Line + 1; lines > limits["lines of a function"] {
			all = append(all, size{s.file + " " + name, "lines of a function", lines})
		}
		return true
	})
	return all
}

func exported(tree *ast.File) (n int) {
	for _, d := range tree.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil && d.Name.IsExported() {
				n++
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					if spec.Name.IsExported() {
						n++
					}
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						if name.IsExported() {
							n++
						}
					}
				}
			}
		}
	}
	return n
}

// hiding returns the names of a file's functions, such as those of variables and parameters, that
// hide a package that the file imports.
func hiding(s source) (all []*ast.Ident) {
	imported := map[string]bool{}
	for _, i := range s.tree.Imports {
		imported[nameOf(i)] = true
	}
	declare := func(names ...*ast.Ident) {
		for _, name := range names {
			if imported[name.Name] && name.Name != "_" {
				all = append(all, name)
			}
		}
	}
	parameters := func(lists ...*ast.FieldList) {
		for _, list := range lists {
			if list != nil {
				for _, field := range list.List {
					declare(field.Names...)
				}
			}
		}
	}
	assigned := func(expressions ...ast.Expr) {
		for _, e := range expressions {
			if name, is := e.(*ast.Ident); is {
				declare(name)
			}
		}
	}
	for _, d := range s.tree.Decls {
		f, is := d.(*ast.FuncDecl)
		if is {
			parameters(f.Recv)
		}
		ast.Inspect(d, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				parameters(n.Type.Params, n.Type.Results)
			case *ast.FuncLit:
				parameters(n.Type.Params, n.Type.Results)
			case *ast.AssignStmt:
				if n.Tok == token.DEFINE {
					assigned(n.Lhs...)
				}
			case *ast.RangeStmt:
				if n.Tok == token.DEFINE {
					assigned(n.Key, n.Value)
				}
			case *ast.ValueSpec:
				if is { // at the top of a file, the compiler refuses it
					declare(n.Names...)
				}
			case *ast.TypeSpec:
				if is {
					declare(n.Name)
				}
			}
			return true
		})
	}
	return all
}
