package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// stiff are the turns of phrase for which plain English has another: what a function returns, it does
// not give, and work continues.
var stiff = []struct {
	pattern     string
	most, tests int // hits that there may be: in comments, pages and strings; in comments of tests. They may only fall.
}{
	{`\btells? whether\b`, 2, 0},
	{`^\w+ gives\b`, 0, 0},
	{`\btells? (how|what|when|which|who|why)\b`, 1, 0},
	{`\bthere (is|are|was|were) none\b`, 2, 8},
	{`\b(go|goes) on\b`, 2, 0},
	{`\b(comes?|came) again\b`, 0, 1},
	{`\bstands? (in|beside|before|behind|below|there|on|at)\b`, 1, 4},
	{`\b(is|are|was|with|by|from|has|under) (that|those) of\b`, 2, 4},
	{`(\w+) (is|are|was|were) no (\w+)`, 0, 1},
	{`(^|[.;:] )What (is|was|has|the|an?|it|they|comes?|came|stays|waits)\b`, 3, 4},
	{`, also (if|while|when|where|one|in|of|those|to|with|after|from|on|by|at|the|a)\b`, 0, 0},
	{`\bby (itself|themselves|yourself)\b`, 0, 1},
	{`\b[Bb]eside\b`, 5, 1},
	{`\b(put|puts|putting) (it |them |(the |a )?messages? )?(off|aside)\b`, 0, 0},
	{`\ball the same\b`, 0, 1},
	{`\banew\b`, 0, 0},
	{`\b(servant|rider|chore)s?\b|\bdoomed\b|\baloft\b`, 0, 0},
}

// plain are hits that are plain English: "there is no key", "is no longer".
var plain = regexp.MustCompile(`(?i)^there (is|are|was|were) no \w+$|^\w+ (is|are|was|were) no (longer|more|less|older)$`)

// Comments, pages and strings have few stiff turns; the tests' comments are counted apart.
func TestWords(t *testing.T) {
	product, tests := prose(t)
	for _, s := range stiff {
		pattern := regexp.MustCompile(s.pattern)
		for _, p := range []struct {
			of   string
			text []passage
			most int
		}{{"comments, pages and strings", product, s.most}, {"comments of tests", tests, s.tests}} {
			if hits := hitsOf(pattern, p.text); len(hits) > p.most {
				t.Errorf("%s: %d hits in %s; %d may be:\n%s", s.pattern, len(hits), p.of, p.most, strings.Join(hits, "\n"))
			}
		}
	}
}

func hitsOf(pattern *regexp.Regexp, all []passage) (hits []string) {
	for _, p := range all {
		for _, at := range pattern.FindAllStringIndex(p.text, -1) {
			if !plain.MatchString(p.text[at[0]:at[1]]) {
				around := p.text[max(at[0]-40, 0):min(at[1]+40, len(p.text))]
				hits = append(hits, fmt.Sprintf("\t%s: %s", p.place, strings.ToValidUTF8(around, "")))
			}
		}
	}
	return hits
}

// A passage is a comment, a paragraph or a string, on one line.
type passage struct{ place, text string }

// prose returns the passages of the product and its pages, and the comments of tests.
func prose(t *testing.T) (product, tests []passage) {
	t.Helper()
	eachFile(t, ".", "_test.go", func(file string) {
		set := token.NewFileSet()
		tree, err := parser.ParseFile(set, file, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Error(err)
			return
		}
		tests = append(tests, comments(set, tree)...)
	})
	for _, s := range sources(t) {
		product = append(append(product, comments(s.set, s.tree)...), texts(s.set, s.tree)...)
	}
	for _, file := range markdownFiles(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for paragraph := range strings.SplitSeq(fences.ReplaceAllString(string(text), ""), "\n\n") {
			product = append(product, passage{file, strings.Join(strings.Fields(paragraph), " ")})
		}
	}
	return product, tests
}

var fences = regexp.MustCompile("(?ms)^ *```.*?^ *```$")

func comments(set *token.FileSet, tree *ast.File) (all []passage) {
	for _, c := range tree.Comments {
		all = append(all, passage{set.Position(c.Pos()).String(), strings.Join(strings.Fields(c.Text()), " ")})
	}
	return all
}

// texts returns the strings of a file; those that + joins are one.
func texts(set *token.FileSet, tree *ast.File) (all []passage) {
	ast.Inspect(tree, func(n ast.Node) bool {
		e, ok := n.(ast.Expr)
		if !ok {
			return true
		}
		text, ok := joined(e)
		if ok {
			all = append(all, passage{set.Position(n.Pos()).String(), strings.Join(strings.Fields(text), " ")})
		}
		return !ok
	})
	return slices.Clip(all)
}

func joined(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		left, ok := joined(e.X)
		right, also := joined(e.Y)
		return left + right, ok && also && e.Op == token.ADD
	}
	return "", false
}
