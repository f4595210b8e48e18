//go:build cluster

package cluster

import (
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
)

var three = []Member{{"n1", "10.0.0.1:8090"}, {"n2", "10.0.0.2:8090"}, {"n3", "[::1]:8090"}}

func TestFile(t *testing.T) {
	t.Parallel()
	f, err := NewFile(three)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "relay.cluster")
	if err := f.Write(path); err != nil {
		t.Fatal(err)
	}
	g, err := ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(f, g) {
		t.Errorf("read %+v, wrote %+v", g, f)
	}
	if err := g.Add(Member{"n4", "relay4.example.org:8090"}); err != nil {
		t.Error(err)
	}
	if err := g.Remove("n2"); err != nil {
		t.Error(err)
	}
	if err := g.Write(path); err != nil {
		t.Error(err)
	}
	if h, err := ReadFile(path); err != nil || len(h.Members) != 3 || h.Address("n2") != "" || h.Address("n4") != "relay4.example.org:8090" {
		t.Errorf("%+v, %v", h, err)
	}
	if info, err := os.Stat(path); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Error(info.Mode(), err)
	}
	for words, m := range map[string]Member{
		"removed": {"n2", "10.0.0.9:1"}, "two members": {"n1", "10.0.0.9:1"}, "have the address": {"n5", "10.0.0.1:8090"},
		"name": {"N5", "10.0.0.9:1"}, "address": {"n5", "10.0.0.9"}, "HOST:PORT": {"n5", "10.0.0.9:0"}, "as 10.0.0.1:8090": {"n5", ":80"},
	} {
		if err := g.Add(m); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%+v: %v, want %q", m, err, words)
		}
	}
	if len(g.Members) != 3 {
		t.Error("a refused member stays:", g.Members)
	}
	if err := g.Remove("n9"); err == nil {
		t.Error("a member was removed that is none")
	}
	if err := g.Remove("n1"); err != nil {
		t.Error(err)
	}
	if err := g.Remove("n3"); err == nil || !strings.Contains(err.Error(), "add one") {
		t.Error(err)
	}
	if _, err := NewFile(three[:2]); err == nil {
		t.Error("a cluster of two")
	}
}

// A file is read strictly: what a person has broken is named.
func TestBrokenFiles(t *testing.T) {
	t.Parallel()
	f, err := NewFile(three)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "good")
	if err := f.Write(path); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	other, err := NewFile(three)
	if err != nil {
		t.Fatal(err)
	}
	cert, _, err := writeAuthority(other.cert, other.key)
	if err != nil {
		t.Fatal(err)
	}
	ours, _, err := writeAuthority(f.cert, f.key)
	if err != nil {
		t.Fatal(err)
	}
	escape := strings.NewReplacer("\n", `\n`)
	for _, c := range []struct{ old, new, words string }{
		{`"version": 1`, `"version": 2`, "version is 2"},
		{`"version": 1`, `"versoin": 1`, "versoin"},
		{"}\n", "} {}", "follows its end"},
		{f.ID, "abc", "hexadecimal"},
		{`"n2"`, `"n1"`, "two members"},
		{`10.0.0.1:8090`, `10.0.0.1`, "HOST:PORT"},
		{escape.Replace(ours), escape.Replace(cert), "key is not that"},
		{"BEGIN PRIVATE KEY", "BEGIN KEY", "PRIVATE KEY"},
		{`"log_bytes": 4294967296`, `"log_bytes": 1`, "the log needs"},
	} {
		text := string(good)
		if i := strings.LastIndex(text, c.old); i >= 0 {
			text = text[:i] + c.new + text[i+len(c.old):]
		} else {
			t.Fatalf("the file has no %q", c.old)
		}
		path := filepath.Join(dir, "broken")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadFile(path); err == nil || !strings.Contains(err.Error(), c.words) || !strings.Contains(err.Error(), path) {
			t.Errorf("%q for %q: %v, want %q", c.new, c.old, err, c.words)
		}
	}
	if runtime.GOOS != "windows" {
		if err := os.Chmod(path, 0o640); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadFile(path); err == nil || !strings.Contains(err.Error(), "chmod 600") {
			t.Errorf("a file that others may read: %v", err)
		}
	}
}
