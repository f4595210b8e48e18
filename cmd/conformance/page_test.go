package conformance_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"relay/cmd/conformance"
)

var update = flag.Bool("update", false, "write the tables of the page conformance")

// The kit has the tables of the page.
func TestThePage(t *testing.T) {
	const path = "conformance.md"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var cases, checks, beyond, vectors strings.Builder
	cases.WriteString("| Case | Judges | The relay | A client must |\n| --- | --- | --- | --- |\n")
	for _, c := range conformance.Cases() {
		role := c.Role
		if role == "" {
			role = "both"
		}
		fmt.Fprintf(&cases, "| `%s` | %s | %s | %s |\n", c.Name, role, c.Does, c.Must)
	}
	const head = "| Check | Section | A server must |\n| --- | --- | --- |\n"
	checks.WriteString(head)
	beyond.WriteString(head)
	for _, c := range conformance.Checks() {
		to := &checks
		if c.Beyond {
			to = &beyond
		}
		fmt.Fprintf(to, "| `%s` | %s | %s |\n", c.Name, c.Section, c.Must)
	}
	vectors.WriteString("```json\n")
	for _, v := range conformance.Vectors() {
		var line bytes.Buffer
		e := json.NewEncoder(&line)
		e.SetEscapeHTML(false)
		if err := e.Encode(v); err != nil {
			t.Fatal(err)
		}
		vectors.Write(line.Bytes())
	}
	vectors.WriteString("```\n")
	page := strings.ReplaceAll(string(text), "\r\n", "\n")
	want := page
	for name, block := range map[string]string{"cases": cases.String(), "checks": checks.String(), "beyond": beyond.String(), "vectors": vectors.String()} {
		place := regexp.MustCompile(`(?s)(<!-- begin ` + name + ` -->\n).*?(<!-- end ` + name + ` -->)`)
		if !place.MatchString(want) {
			t.Fatalf("the page has no place for %s", name)
		}
		want = place.ReplaceAllStringFunc(want, func(s string) string {
			m := place.FindStringSubmatch(s)
			return m[1] + block + m[2]
		})
	}
	if want == page {
		return
	}
	if !*update {
		t.Fatal("a table of the page is not that of the kit: go test ./cmd/conformance -run TestThePage -update")
	}
	if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

// The vectors hold by the words of the interface document alone.
func TestTheVectorsHold(t *testing.T) {
	for _, v := range conformance.Vectors() {
		mac := hmac.New(sha256.New, []byte(v.Secret))
		mac.Write([]byte(v.Body + "|" + v.Nonce + "|" + v.Timestamp))
		if want := base64.StdEncoding.EncodeToString(mac.Sum(nil)); v.Signature != want {
			t.Errorf("%s: %s, want %s", v.About, v.Signature, want)
		}
	}
	if first := conformance.Vectors()[0].Signature; first != "+cB4ZX5kE5/2MtmOIFQM+RL2lCXWitpfiCVPK/RZB4k=" { // the one of the page "signing"
		t.Error(first)
	}
}
