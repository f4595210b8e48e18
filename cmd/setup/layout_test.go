package setup

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"relay/db/scratch"
)

// scribe writes files at random, in layouts that nobody would choose.
type scribe struct {
	*rand.Rand
	bytes.Buffer
	format  Format
	lineEnd string
}

// one writes one of several texts, of which ~ stands for a line end.
func (s *scribe) one(texts ...string) {
	s.WriteString(strings.ReplaceAll(texts[s.IntN(len(texts))], "~", s.lineEnd))
}

func (s *scribe) gap() {
	for range s.IntN(3) {
		s.one("", " ", "~", "\t", "~  ", " ~\t\t", "~~")
		if s.format == JSONC && s.IntN(4) == 0 {
			s.one("// \"a\": {~", "/* } */", "/*~ ]*/", "//~", "// c  ~  ", "/**/", "// */~", "/* // */")
		}
	}
}

// object writes an object that often has what is at a path: objects, and an array if the last name is Stop.
func (s *scribe) object(depth int, path ...string) {
	n := s.IntN(4)
	at := s.IntN(n + 1)
	s.list("{", "}", n, func(i int) {
		name, inside := string(rune('a'+i)), i == at && len(path) > 0
		if inside {
			name = path[0]
		}
		fmt.Fprintf(s, "%q", name)
		s.gap()
		s.WriteString(":")
		s.gap()
		switch {
		case !inside:
			s.value(depth + 1)
		case name == "Stop":
			s.list("[", "]", s.IntN(3), func(int) { s.value(depth + 1) })
		default:
			s.object(depth+1, path[1:]...)
		}
	})
}

func (s *scribe) value(depth int) {
	switch kind := s.IntN(4); {
	case kind == 0 && depth < 5:
		s.object(depth + 1)
	case kind == 1 && depth < 5:
		s.list("[", "]", s.IntN(3), func(int) { s.value(depth + 1) })
	default:
		s.one(`1`, `""`, `null`, `-0.5E+7`, `"a\"}"`, `"\\"`, `"//"`, `"/*"`, `"[,"`, `true`)
	}
}

func (s *scribe) list(open, end string, n int, child func(i int)) {
	s.WriteString(open)
	s.gap()
	for i := range n {
		child(i)
		s.gap()
		if i < n-1 || s.format == JSONC && s.IntN(3) == 0 {
			s.WriteString(",")
			s.gap()
		}
	}
	s.WriteString(end)
}

func (s *scribe) toml() {
	for i := range s.IntN(7) {
		s.one("", "~", "# c~", "  ", "~~", "\t# [mcp_servers.relay]~")
		key := fmt.Sprintf([]string{"a%d", "'a.%d'", `"\t%d"`, "a%d.b.c"}[s.IntN(4)], i)
		if s.IntN(3) == 0 {
			s.one("[x."+key+"]", "[ mcp_servers . x"+fmt.Sprint(i)+" ]", "[["+key+"]]")
		} else {
			s.one(key+"=", key+" = ", key+"\t=\t")
			s.one("1", `'#'`, `"\""`, "[]", "[~ 1, # c~ 2,~]", "{ a = 1 }", "07:32:00")
			s.one("", "", "", "\t# c")
		}
		s.one("~", " ~", "~~")
	}
	s.one("", "", "", "# the end~", "# the end", "  ", "z = \"\"\"~[mcp_servers]~\"\"\"", "z = '''~'\"'''~", "z = {~ a = [{}], # c~}")
}

// Of files in any layout, the same holds as of hostile ones.
func TestAnyLayout(t *testing.T) {
	type kind struct {
		format Format
		under  string
	}
	kinds := []kind{{JSON, "mcpServers"}, {JSON, "hooks.Stop"}, {JSONC, "servers"}, {JSONC, "hooks.Stop"}, {TOML, "mcp_servers"}}
	merged, exact := map[kind]int{}, map[kind]int{}
	files := scratch.Amount(t, 500, 2000)
	for seed := range uint64(files) {
		r := rand.New(rand.NewPCG(seed, 0))
		for _, k := range kinds {
			s := &scribe{Rand: r, format: k.format, lineEnd: []string{"\n", "\n", "\r\n"}[r.IntN(3)]}
			s.one("", "", "", byteOrderMark)
			if k.format == TOML {
				s.toml()
			} else {
				s.gap()
				s.object(0, strings.Split(k.under, ".")...)
				s.gap()
			}
			text := s.Bytes()
			if _, err := read(k.format, text); err != nil {
				t.Fatalf("%d: %v: %q", seed, err, text)
			}
			if _, back, ok := addAndRemove(t, k.format, text, hostileEntry(k.under)); ok {
				merged[k]++
				if bytes.Equal(back, text) {
					exact[k]++
				}
			}
		}
	}
	for _, k := range kinds {
		if merged[k] < files*9/10 || exact[k] < files/2 {
			t.Errorf("of %d files %d were merged, and %d came back byte for byte: %v", files, merged[k], exact[k], k)
		}
	}
}
