package docs

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"regexp"
	"strings"
	"sync"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	extast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// A Site is the documentation as a server shows it. It is read-only, and safe
// for concurrent use.
type Site struct {
	Index    []byte            // /docs
	Missing  []byte            // for a path that has no page: it lists the pages
	Pages    map[string][]byte // /docs/NAME
	Texts    map[string][]byte // /docs/NAME.md
	Pictures map[string][]byte // /docs/NAME.png
	// Policy is the Content-Security-Policy of all of these: no script, nothing
	// from elsewhere, and no style but their own.
	Policy string
}

// HTML returns the site. It is made once: anyone may ask a server for it, as often
// as they like.
var HTML = sync.OnceValue(func() *Site {
	s, err := newSite(Pages())
	if err != nil {
		panic(err) // the pages are part of the program, and the tests render them all
	}
	return s
})

func newSite(pages []Page) (*Site, error) {
	style := dense(styleFile)
	sum := sha256.Sum256([]byte(style))
	s := &Site{Pages: map[string][]byte{}, Texts: map[string][]byte{}, Pictures: pictures(),
		Policy: "default-src 'none'; img-src 'self'; style-src 'sha256-" +
			base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"}
	v := view{Style: template.CSS(style), Parts: parts(pages), Title: "relay", About: about}
	for _, c := range codes(pages) { // errors link to /docs#CODE
		meaning, _, err := render(c.Meaning)
		if err != nil {
			return nil, err
		}
		v.Codes = append(v.Codes, codeView{c.Name, c.Status, meaning})
	}
	var err error
	if s.Index, err = v.execute(); err != nil {
		return nil, err
	}
	v.Codes, v.Missing = nil, true
	if s.Missing, err = v.execute(); err != nil {
		return nil, err
	}
	v.Missing = false
	for _, p := range pages {
		v.Title, v.About, v.Current = p.Title, p.About, p.Name
		if v.Content, v.Sections, err = render(p.Text); err == nil {
			s.Pages[p.Name], err = v.execute()
		}
		if err != nil {
			return nil, fmt.Errorf("page %s: %w", p.Name, err)
		}
		s.Texts[p.Name+".md"] = []byte(p.Text)
	}
	return s, nil
}

const about = "Passes JSON messages between AI agents over HTTP and WebSockets, and keeps them in one file"

// view is what the template shows.
type view struct {
	Style    template.CSS
	Title    string
	About    string
	Current  string // the page's name; "": the index, or Missing
	Missing  bool   // the path that was asked for has no page
	Parts    []part
	Sections []section
	Content  template.HTML
	Codes    []codeView // on the index
}

type part struct {
	Title string
	Pages []Page
}

type section struct {
	Anchor, Title string
	Level         int
}

type codeView struct {
	Name, Status string
	Meaning      template.HTML
}

func (v *view) execute() ([]byte, error) {
	var b bytes.Buffer
	err := layout.Execute(&b, v)
	return b.Bytes(), err
}

func parts(pages []Page) (all []part) {
	for _, p := range pages {
		if len(all) == 0 || all[len(all)-1].Title != p.Part {
			all = append(all, part{Title: p.Part})
		}
		last := &all[len(all)-1]
		last.Pages = append(last.Pages, p)
	}
	return all
}

// HTML in a page is left out: that is goldmark's default. A column's alignment
// is an attribute, because the policy refuses style attributes.
var markdown = goldmark.New(
	goldmark.WithExtensions(extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute))),
	goldmark.WithRendererOptions(html.WithWriter(plainQuotes{html.DefaultWriter})),
	goldmark.WithParserOptions(parser.WithAutoHeadingID(), parser.WithASTTransformers(util.Prioritized(adapter{}, 1000))),
)

// plainQuotes writes quotes in code as they are, which is shorter. They have a meaning in
// attributes only, which goldmark writes by other ways.
type plainQuotes struct{ html.Writer }

// RawWrite is of html.Writer.
func (plainQuotes) RawWrite(w util.BufWriter, source []byte) {
	_, _ = escapeText.WriteString(w, string(source)) // into memory
}

var escapeText = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// render returns the HTML of a text, and its headings of levels 2 and 3.
func render(source string) (template.HTML, []section, error) {
	src := []byte(source)
	doc := markdown.Parser().Parse(text.NewReader(src), parser.WithContext(parser.NewContext(parser.WithIDs(anchors{}))))
	var sections []section
	for n := doc.FirstChild(); n != nil; n = n.NextSibling() {
		h, ok := n.(*ast.Heading)
		if id, known := n.AttributeString("id"); ok && known && h.Level > 1 && h.Level < 4 {
			title := strings.ReplaceAll(string(h.Lines().Value(src)), "`", "")
			sections = append(sections, section{string(id.([]byte)), title, h.Level})
		}
	}
	var b bytes.Buffer
	err := markdown.Renderer().Render(&b, src, doc)
	return template.HTML(b.String()), sections, err // our own words, and HTML in them is left out
}

// anchors names headings as forges do, so that a link to a section works in the
// file as well as on the server: small letters, hyphens for spaces, no punctuation.
type anchors map[string]int

// Generate is of parser.IDs.
func (a anchors) Generate(heading []byte, _ ast.NodeKind) []byte {
	id := strings.Map(func(r rune) rune {
		switch {
		case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_':
			return unicode.ToLower(r)
		case r == ' ':
			return '-'
		}
		return -1
	}, strings.TrimSpace(string(heading)))
	n := a[id]
	a[id]++
	if n > 0 {
		id = fmt.Sprintf("%s-%d", id, n)
	}
	return []byte(id)
}

// Put is of parser.IDs; no heading here brings its own id.
func (a anchors) Put([]byte) {}

// adapter fits the files to the server. A link to keys.md#rotating becomes one to /docs/keys#rotating, and the picture
// now.png one from /docs/now.png. Each cell of a wide table gets the name of its column, because a narrow screen shows
// the cells of a row one below the other. The language of a block of code goes: no style asks for it.
type adapter struct{}

// Transform is of parser.ASTTransformer.
func (adapter) Transform(doc *ast.Document, source text.Reader, _ parser.Context) {
	_ = ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Link:
			n.Destination = []byte(onServer(string(n.Destination)))
		case *ast.Image:
			n.Destination = append([]byte("/docs/"), n.Destination...)
		case *ast.FencedCodeBlock:
			n.Info = nil
		case *extast.Table:
			if len(n.Alignments) > 2 {
				labelCells(n, source.Source())
			}
		}
		return ast.WalkContinue, nil
	})
}

func onServer(link string) string {
	file, anchor, found := strings.Cut(link, "#")
	name, isPage := strings.CutSuffix(file, ".md")
	if !isPage {
		return link
	}
	if found {
		anchor = "#" + anchor
	}
	return "/docs/" + name + anchor
}

func labelCells(table *extast.Table, source []byte) {
	table.SetAttributeString("class", []byte("wide"))
	header := table.FirstChild()
	for row := header.NextSibling(); row != nil; row = row.NextSibling() {
		label := header.FirstChild()
		for cell := row.FirstChild(); cell != nil && label != nil; cell = cell.NextSibling() {
			// no code in an attribute
			cell.SetAttributeString("data-label", bytes.ReplaceAll(label.Lines().Value(source), []byte("`"), nil))
			label = label.NextSibling()
		}
	}
}

var (
	//go:embed style.css
	styleFile string
	//go:embed layout.html
	layoutFile string

	layout = template.Must(template.New("layout").Parse(layoutFile))
)

// dense returns a style without what is in it for people, because each page carries it.
func dense(style string) string {
	for _, r := range []struct{ what, by string }{{`(?s)/\*.*?\*/`, ""}, {`\s+`, " "}, {` ?([{};,]) ?`, "$1"}} {
		style = regexp.MustCompile(r.what).ReplaceAllString(style, r.by)
	}
	return strings.TrimSpace(style)
}
