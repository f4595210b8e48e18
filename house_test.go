package main

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// A source is a file of the product: Go that is not a test. Files of every system and of
// every build tag count.
type source struct {
	file, dir string
	text      []byte
	set       *token.FileSet
	tree      *ast.File
}

// sources returns the product, and parses it once.
func sources(t *testing.T) []source {
	t.Helper()
	all, err := product()
	if err != nil || len(all) < 100 {
		t.Fatalf("%d files were read: %v", len(all), err)
	}
	return all
}

var product = sync.OnceValues(func() (all []source, err error) {
	set := token.NewFileSet()
	err = filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		name := d.Name()
		switch {
		case err != nil:
			return err
		case d.IsDir() && (name == "testdata" || len(name) > 1 && name[0] == '.' || file == filepath.Join("contrib", "packages")): // a module of its own
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // gone since the directory was read
		}
		if err != nil {
			return err
		}
		tree, err := parser.ParseFile(set, file, text, parser.ParseComments|parser.SkipObjectResolution)
		slashed := filepath.ToSlash(file)
		all = append(all, source{slashed, path.Dir(slashed), text, set, tree})
		return err
	})
	return all, err
})

func (s source) imports() (all []string) {
	for _, i := range s.tree.Imports {
		imported, _ := strconv.Unquote(i.Path.Value)
		all = append(all, imported)
	}
	return all
}

const ringsFile = "cmd/rings.go"

// rings returns the folders of each ring, by its name. An import of cmd/rings.go names the
// first one, but for "/ring" at its end; a comment behind it, as in "with ws/feed", names others, and files.
func rings(t *testing.T) map[string][]string {
	t.Helper()
	tree, err := parser.ParseFile(token.NewFileSet(), ringsFile, nil, parser.ImportsOnly|parser.ParseComments)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // all of them are taken off
	}
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for _, i := range tree.Imports {
		imported, _ := strconv.Unquote(i.Path.Value)
		folder := strings.TrimSuffix(strings.TrimPrefix(imported, "relay/"), "/ring")
		others, _ := strings.CutPrefix(i.Comment.Text(), "with ")
		all[path.Base(folder)] = append([]string{folder}, strings.Fields(others)...)
	}
	return all
}

// libraries returns the folders that only rings may import. cmd/rings.go lists them.
func libraries(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(ringsFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	var all []string
	for _, m := range regexp.MustCompile(`(?m)^//\t(\S+)$`).FindAllStringSubmatch(string(text), -1) {
		all = append(all, m[1])
	}
	return strings.Join(all, " ")
}

// ringOf returns the name of the ring that a folder belongs to, or "" for the core.
func ringOf(all map[string][]string, dir string) string {
	for name, folders := range all {
		if within(dir, strings.Join(folders, " ")) {
			return name
		}
	}
	return ""
}

// ringRows returns the rows of the house that a ring keeps in its folder.
func ringRows(t *testing.T, folder string) (rows []row) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, "house.txt"))
	if err != nil {
		t.Fatalf("a ring has its rows of the house in its folder: %v", err)
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		cells := strings.Split(line, "|")
		if len(cells) != 3 {
			t.Fatalf("%s/house.txt: %q is not folder | imports of ours | unseen", folder, line)
		}
		rows = append(rows, row{strings.TrimSpace(cells[0]), cells[1], cells[2]})
	}
	return rows
}

// The core's rows are in house, in order. A ring's rows are in its folder; it imports what is in
// its own folders, cmd/internal/serve for what it adds to relay serve, and cmd/internal/remote and
// what stands below that. Libraries of rings are imported by rings, and by one another.
func TestThePackagesKeepTheirPlaces(t *testing.T) {
	places := map[string]int{}
	for i, r := range house {
		places[r.dir] = i
	}
	rows, all, libs := slices.Clone(house), rings(t), libraries(t)
	for name, folders := range all {
		for _, r := range ringRows(t, folders[0]) {
			if rows = append(rows, r); ringOf(all, r.dir) != name {
				t.Errorf("%s/house.txt has a row of %s", folders[0], r.dir)
			}
		}
	}
	seen := map[string]bool{}
	for _, s := range sources(t) {
		i := slices.IndexFunc(rows, func(r row) bool { return r.dir == s.dir })
		if i < 0 {
			t.Errorf("%s: the house has no room %s", s.file, s.dir)
			continue
		}
		seen[s.dir] = true
		for _, imported := range s.imports() {
			dir, ours := strings.CutPrefix(imported, "relay/")
			if ours = ours || imported == "relay"; ours && !mayImport(all, libs, places, rows[i], s.file, dir) {
				t.Errorf("%s imports %s", s.file, imported)
			}
			if within(imported, rows[i].unseen) {
				t.Errorf("%s imports %s, which is not the business of %s", s.file, imported, s.dir)
			}
		}
	}
	for _, r := range rows {
		if gone := len(all) == 0 && within(r.dir, libs); !seen[r.dir] && !gone {
			t.Errorf("no product is in %s", r.dir)
		}
	}
}

// mayImport reports whether a file of a package may import another package of ours.
func mayImport(rings map[string][]string, libraries string, places map[string]int, r row, file, dir string) bool {
	from, to := ringOf(rings, r.dir), ringOf(rings, dir)
	switch {
	case to != "" && file == ringsFile:
		return true
	case !slices.Contains(strings.Fields(r.ours), dir):
		return false
	case to != "":
		return from == to
	case from != "":
		place, stands := places[dir]
		return dir == "cmd/internal/serve" || stands && place >= places["cmd/internal/remote"]
	}
	return places[dir] > places[r.dir] && (within(r.dir, libraries) || !within(dir, libraries))
}

// Every package says what it is for.
func TestEveryPackageHasAComment(t *testing.T) {
	said := map[string]bool{}
	for _, s := range sources(t) {
		name := "Package " + s.tree.Name.Name + " "
		if s.tree.Name.Name == "main" {
			name = ""
		}
		said[s.dir] = said[s.dir] || s.tree.Doc != nil && strings.HasPrefix(s.tree.Doc.Text(), name)
	}
	for dir, has := range said {
		if !has {
			t.Errorf("%s has no package comment", dir)
		}
	}
}

// The table of the house in CONTRIBUTING.md has the packages of the core, in the order of the
// stair; that of the dependencies has the modules of go.mod.
func TestTheTablesOfCONTRIBUTING(t *testing.T) {
	text := read(t, "CONTRIBUTING.md")
	first := func(heading string) (all []string) {
		_, section, _ := strings.Cut(text, "\n"+heading+"\n")
		section, _, _ = strings.Cut(section, "\n## ")
		for _, cell := range regexp.MustCompile("(?m)^\\| (`.*?) \\|").FindAllStringSubmatch(section, -1) {
			for _, name := range regexp.MustCompile("`(.*?)`").FindAllStringSubmatch(cell[1], -1) {
				all = append(all, name[1])
			}
		}
		return all
	}
	var packages []string
	for _, r := range house[1:] {
		packages = append(packages, r.dir)
	}
	if got := first("## The house"); !slices.Equal(got, packages) {
		t.Errorf("the house is\n%v\nand the table has\n%v", packages, got)
	}
	var modules []string
	for _, m := range regexp.MustCompile(`(?m)^(?:\t|require |tool )(\S+/\S+)( v\S+)?$`).FindAllStringSubmatch(read(t, "go.mod"), -1) {
		modules = append(modules, strings.TrimSuffix(m[1], "/cmd/staticcheck"))
	}
	got := first("## Dependencies")
	slices.Sort(got)
	slices.Sort(modules)
	if modules = slices.Compact(modules); !slices.Equal(got, modules) {
		t.Errorf("go.mod has\n%v\nand the table has\n%v", modules, got)
	}
}

// CONTRIBUTING.md names the packages of the core that have a long form.
func TestTheLongFormIsWhereCONTRIBUTINGSays(t *testing.T) {
	var want []string
	eachFile(t, ".", "_test.go", func(file string) {
		dir := path.Dir(file)
		if ringOf(rings(t), dir) == "" && regexp.MustCompile(`scratch\.(Long|Amount)\(`).MatchString(read(t, file)) {
			want = append(want, strings.Replace("./"+dir, "./.", ".", 1))
		}
	})
	row := regexp.MustCompile("\n\\| `go test (.*) -long ").FindStringSubmatch(read(t, "CONTRIBUTING.md"))
	if row == nil {
		t.Fatal("there is no row of the long form")
	}
	got := slices.DeleteFunc(strings.Fields(row[1]), func(dir string) bool { return isTakenOff(t, path.Clean(dir)) })
	slices.Sort(want)
	if want = slices.Compact(want); !slices.Equal(got, want) {
		t.Errorf("a long form have %v, and the row has %v", want, got)
	}
}

// within reports whether a path is one of a list, or below one.
func within(imported, list string) bool {
	for p := range strings.FieldsSeq(list) {
		if imported == p || strings.HasPrefix(imported, p+"/") {
			return true
		}
	}
	return false
}

// nameOf returns the name that an import has in its file, as far as its path tells it.
func nameOf(i *ast.ImportSpec) string {
	if i.Name != nil {
		return i.Name.Name
	}
	imported, _ := strconv.Unquote(i.Path.Value)
	if version.MatchString(path.Base(imported)) {
		imported = path.Dir(imported)
	}
	return strings.TrimPrefix(path.Base(imported), "go-")
}

var version = regexp.MustCompile(`^v\d+$`)

// The files that comments and pages name are there: by their path or, in a comment, by their name in
// the same folder.
func TestFilesThatAreNamedExist(t *testing.T) {
	named := regexp.MustCompile(`(?:^|[\s(` + "`" + `])((?:(?:cmd|db|http|search|ws)/[\w/]*)?\w+\.go)\b`)
	check := func(from, dir, text string) {
		for _, m := range named.FindAllStringSubmatch(text, -1) {
			at := m[1]
			if !strings.Contains(at, "/") {
				at = path.Join(dir, at)
			}
			if _, err := os.Stat(at); err != nil && !isTakenOff(t, path.Dir(at)) && (dir != "" || strings.Contains(m[1], "/")) {
				t.Errorf("%s names %s, which does not exist", from, m[1])
			}
		}
	}
	for _, s := range sources(t) {
		for _, c := range s.tree.Comments {
			check(s.file, s.dir, c.Text())
		}
	}
	for _, page := range []string{"schema.sql", "CONTRIBUTING.md", "SECURITY.md", pages + "architecture.md"} {
		check(page, "", read(t, page))
	}
}
