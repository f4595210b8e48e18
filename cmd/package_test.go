package cmd_test

import (
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"relay/db/scratch"
	"relay/http/docs"
)

// The versions of the packages that tests make: an upgrade leads from one to the other.
const (
	older = "1.0.0"
	newer = "2.0.0"
)

// Who makes the newer ones says who they are.
const (
	maintainer = "Ann Lee <ann@example.com>"
	homepage   = "https://relay.example.com"
)

// packages are the packages of goreleaser.yaml, in a folder.
type packages struct{ dir string }

var errNoModules = errors.New("the modules of contrib/packages cannot be had")

// makePackages builds two versions of relay, as its users do, and packs them. All
// tests share them. Nobody waits for modules that cannot be had.
var makePackages = sync.OnceValues(func() (packages, error) {
	p := packages{filepath.Join(filepath.Dir(binary), "packages")}
	maker := filepath.Join(p.dir, "maker")
	goTool := func(args ...string) ([]byte, error) {
		c := exec.Command("go", args...)
		c.Env = append(environ(), "CGO_ENABLED=0", "GOFLAGS=")
		return c.CombinedOutput()
	}
	if out, err := goTool("-C", "../contrib/packages", "mod", "download"); err != nil {
		return p, fmt.Errorf("%w: %s", errNoModules, out)
	}
	if out, err := goTool("-C", "../contrib/packages", "build", "-o", maker, "."); err != nil {
		return p, fmt.Errorf("go build: %w\n%s", err, out)
	}
	for version, formats := range map[string]string{older: "", newer: "deb"} {
		program := p.program(version)
		if out, err := goTool("build", "-ldflags", "-s -w -X relay/cmd/internal/cli.version="+version, "-o", program, ".."); err != nil {
			return p, fmt.Errorf("go build: %w\n%s", err, out)
		}
		c := exec.Command(maker, "-source", "..", "-program", program, "-version", version, "-out", p.dir, "-formats", formats)
		c.Env = environ()
		if version == newer {
			c.Env = append(c.Env, "RELAY_MAINTAINER="+maintainer, "RELAY_HOMEPAGE="+homepage)
		}
		if out, err := c.CombinedOutput(); err != nil {
			return p, fmt.Errorf("making packages: %w\n%s", err, out)
		}
	}
	return p, nil
})

// whyNoPackages says what is missing to make packages, if anything is.
func whyNoPackages(t testing.TB) string {
	if !scratch.Long(t) {
		return "packages take a while to make; -long makes them"
	}
	if runtime.GOOS != "linux" {
		return "packages are for Linux"
	}
	if !docs.Has("man") {
		return "packages have manual pages and completions"
	}
	for _, name := range []string{"go", "sh", "gzip", "dpkg-deb"} {
		if _, err := exec.LookPath(name); err != nil {
			return name + " is not installed"
		}
	}
	if _, err := makePackages(); errors.Is(err, errNoModules) {
		return err.Error()
	}
	return ""
}

// mustMakePackages returns the packages.
func mustMakePackages(t testing.TB) packages {
	t.Helper()
	if why := whyNoPackages(t); why != "" {
		t.Skip(why)
	}
	p, err := makePackages()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// program is relay as it is in the packages of a version.
func (p packages) program(version string) string { return filepath.Join(p.dir, version, "relay") }

// file is the only package that fits a pattern.
func (p packages) file(t interface{ Fatalf(string, ...any) }, pattern string) string {
	found, err := filepath.Glob(filepath.Join(p.dir, pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %v %v", pattern, found, err)
	}
	return found[0]
}

// unpack unpacks the package of a format into a new folder.
func (p packages) unpack(t testing.TB, format string) string {
	t.Helper()
	root := t.TempDir()
	file := p.file(t, "relay?"+older+"*."+format)
	var c *exec.Cmd
	switch format {
	case "deb":
		c = exec.Command("dpkg-deb", "-x", file, root)
	case "apk":
		c = exec.Command(tool(t, "tar"), "-xzf", file, "-C", root, "--warning=no-unknown-keyword", "etc", "usr")
	case "rpm":
		if _, err := exec.LookPath("bsdtar"); err == nil {
			c = exec.Command("bsdtar", "-xf", file, "-C", root)
			break
		}
		c = exec.Command("sh", "-c", tool(t, "rpm2cpio", "cpio")+` "$0" | cpio -idm --quiet`, file)
		c.Dir = root
	}
	finish(t, c, nil, "").wantCode(t, 0)
	return root
}

// Each package has the same files, with a program that runs, and a manual page for
// every command.
func TestPackagesHoldTheProgramAndWhatStandsBesideIt(t *testing.T) {
	t.Parallel()
	p := mustMakePackages(t)
	manual := t.TempDir()
	mustRelay(t, "man", manual) // TestMan knows that no command is without a page
	pages, err := filepath.Glob(filepath.Join(manual, "*.1"))
	if err != nil || len(pages) < 40 {
		t.Fatal(pages, err)
	}
	for i, page := range pages {
		pages[i] = "/usr/share/man/man1/" + filepath.Base(page) + ".gz"
	}
	for format, zsh := range map[string]string{"deb": "vendor-completions", "rpm": "site-functions", "apk": "site-functions"} {
		t.Run(format, func(t *testing.T) {
			root := p.unpack(t, format)
			have := map[string]fs.FileMode{}
			err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() {
					return err
				}
				info, err := d.Info()
				have[strings.TrimPrefix(path, root)] = info.Mode()
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]fs.FileMode{"/usr/bin/relay": 0o755}
			for _, file := range append([]string{
				"/etc/relay/relay.env", "/usr/lib/systemd/system/relay.service", "/usr/share/doc/relay/copyright", "/usr/share/doc/relay/CHANGELOG.md",
				"/usr/share/bash-completion/completions/relay", "/usr/share/fish/vendor_completions.d/relay.fish", "/usr/share/zsh/" + zsh + "/_relay",
			}, pages...) {
				want[file] = 0o644
			}
			for file, mode := range want {
				if have[file] != mode {
					t.Errorf("%s has the mode %v, not %v", file, have[file], mode)
				}
			}
			for file := range maps.Keys(have) {
				if _, wanted := want[file]; !wanted {
					t.Errorf("%s is in the package", file)
				}
			}
			r := finish(t, exec.Command(filepath.Join(root, "usr/bin/relay"), "version"), nil, "").wantCode(t, 0)
			if !strings.HasPrefix(r.out, "relay "+older+" ") {
				t.Errorf("it says %q", r.out)
			}
		})
	}
}

// A package names the one who has made it, and no address that nobody has.
func TestPackagesNameTheirMaintainer(t *testing.T) {
	t.Parallel()
	p := mustMakePackages(t)
	for version, want := range map[string]string{
		older: "Maintainer: nobody yet <unset@relay.invalid>\n",
		newer: "Maintainer: " + maintainer + "\nHomepage: " + homepage + "\n",
	} {
		c := exec.Command("dpkg-deb", "-f", p.file(t, "relay_"+version+"_*.deb"), "Maintainer", "Homepage")
		if r := finish(t, c, nil, "").wantCode(t, 0); r.out != want {
			t.Errorf("%s: %q, not %q", version, r.out, want)
		}
	}
}

// A machine makes packages for another one: -arch names it as Go does, a package as its
// distribution does.
func TestPackagesAreForAnArchitecture(t *testing.T) {
	t.Parallel()
	p := mustMakePackages(t)
	for arch, want := range map[string]string{"arm": "armhf", "arm64": "arm64"} {
		dir := t.TempDir()
		c := exec.Command(filepath.Join(p.dir, "maker"), "-source", "..", "-program", p.program(older), "-arch", arch, "-out", dir, "-formats", "deb")
		r := finish(t, c, nil, "").wantCode(t, 0)
		if file := filepath.Join(dir, "relay_0.0.0_"+want+".deb"); r.out != file+"\n" {
			t.Errorf("it prints %q, not %s", r.out, file)
		}
	}
}

// What a shell runs as root at an installation is a script that it understands, and
// no package removes messages.
func TestPackageScripts(t *testing.T) {
	tool(t, "sh")
	scripts, err := filepath.Glob("../contrib/packages/*.sh")
	if err != nil || len(scripts) != 4 {
		t.Fatal(scripts, err)
	}
	for _, script := range scripts {
		finish(t, exec.Command("sh", "-n", script), nil, "").wantCode(t, 0)
		text, err := os.ReadFile(script)
		if err != nil || strings.Contains(string(text), "rm ") || strings.Contains(string(text), "userdel") {
			t.Errorf("%s: %v\n%s", script, err, text)
		}
	}
}

// The list of what is in a program names each module that Go has noted in it, with
// the checksum that go.sum has.
func TestTheListOfModulesIsWhole(t *testing.T) {
	t.Parallel()
	program, file := mustMakePackages(t).program(older), filepath.Join(t.TempDir(), "relay.cdx.json")
	c := exec.Command("go", "run", "../contrib/sbom", program, older, file)
	finish(t, c, []string{"GOFLAGS="}, "").wantCode(t, 0)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	list := parse[struct {
		Format   string `json:"bomFormat"`
		Metadata struct {
			Component struct{ Name, Version string }
		}
		Components []struct {
			Name, Version, PURL string
			Hashes              []struct{ Alg, Content string }
		}
	}](t, text)
	if list.Format != "CycloneDX" || list.Metadata.Component.Name != "relay" || list.Metadata.Component.Version != older {
		t.Errorf("%s: %+v", list.Format, list.Metadata)
	}
	sums, err := os.ReadFile("../go.sum")
	if err != nil {
		t.Fatal(err)
	}
	info, err := buildinfo.ReadFile(program)
	if err != nil || len(info.Deps) < 20 || len(list.Components) != len(info.Deps)+1 {
		t.Fatalf("%d modules, and %d in the list: %v", len(info.Deps), len(list.Components), err)
	}
	for _, c := range list.Components {
		if c.Name == "std" {
			continue
		}
		sum, err := hex.DecodeString(c.Hashes[0].Content)
		line := c.Name + " " + c.Version + " h1:" + base64.StdEncoding.EncodeToString(sum) + "\n"
		if err != nil || !strings.Contains(string(sums), line) || c.PURL != "pkg:golang/"+c.Name+"@"+c.Version {
			t.Errorf("%+v: go.sum has no line %s", c, line)
		}
	}
}
