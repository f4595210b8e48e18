// Packages makes a .deb, a .rpm and an .apk of the source around it, as goreleaser.yaml
// describes them. It uses the library of goreleaser, nfpm, but is built in half a minute.
// The packages are for the architecture that runs it, or the one named by -arch, and are in
// the folder dist of the source.
//
//	go run -C contrib/packages . -version 1.2.3 -arch arm64
package main

import (
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/apk"
	_ "github.com/goreleaser/nfpm/v2/deb"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// maker makes packages of one program.
type maker struct {
	source    string // the folder of goreleaser.yaml
	out       string
	program   string
	version   string
	arch      string // as GOARCH names it
	generated string // what generate.sh makes
}

func main() {
	log.SetFlags(0)
	m := maker{}
	flag.StringVar(&m.source, "source", "../..", "the `folder` of goreleaser.yaml")
	flag.StringVar(&m.out, "out", "../../dist", "write the packages into this `folder`")
	flag.StringVar(&m.program, "program", "", "pack this `file`, which must run here; else the source is built")
	flag.StringVar(&m.arch, "arch", runtime.GOARCH, "make them for this `architecture`, as Go names it: amd64, arm64 or arm")
	flag.StringVar(&m.version, "version", "0.0.0", "the `version` of the packages")
	formats := flag.String("formats", "", "a `list` such as deb,rpm; else those of goreleaser.yaml")
	flag.Parse()
	if path, err := filepath.Abs(m.out); err == nil { // go run -C has changed the folder
		m.out = path
	}
	if path, err := filepath.Abs(m.program); err == nil && m.program != "" { // commands run in the source
		m.program = path
	}
	if err := m.run(*formats); err != nil {
		log.Fatal(err)
	}
}

func (m *maker) run(formats string) error {
	described, err := read(filepath.Join(m.source, "goreleaser.yaml"))
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "relay-packages-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	m.generated = filepath.Join(work, "generated")
	if err := m.build(work); err != nil {
		return err
	}
	if err := os.MkdirAll(m.out, 0o755); err != nil {
		return err
	}
	if formats != "" {
		described.Formats = strings.Split(formats, ",")
	}
	for _, format := range described.Formats {
		if err := m.pack(described, format); err != nil {
			return fmt.Errorf("%s: %w", format, err)
		}
	}
	return nil
}

// build makes the program, if it is missing, and the other files of a package. The manual
// pages come from a program that runs here.
func (m *maker) build(work string) error {
	here := m.program
	if m.program == "" {
		m.program, here = filepath.Join(work, "relay"), filepath.Join(work, "here")
		if err := m.compile(m.program, "linux", m.arch); err != nil {
			return err
		}
		if err := m.compile(here, runtime.GOOS, runtime.GOARCH); err != nil {
			return err
		}
	}
	return m.command("sh", "contrib/packages/generate.sh", here, m.generated)
}

func (m *maker) compile(file, system, arch string) error {
	return m.command("env", "CGO_ENABLED=0", "GOARM=7", "GOOS="+system, "GOARCH="+arch,
		"go", "build", "-trimpath", "-ldflags", "-s -w -X relay/cmd/internal/cli.version="+m.version, "-o", file, ".")
}

// command runs in the source.
func (m *maker) command(name string, args ...string) error {
	c := exec.Command(name, args...)
	c.Dir, c.Stderr = m.source, os.Stderr
	if err := c.Run(); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(c.Args, " "), err)
	}
	return nil
}

func (m *maker) pack(d *description, format string) (err error) {
	info := nfpm.WithDefaults(d.info(m, format))
	if err := nfpm.PrepareForPackager(info, format); err != nil {
		return err
	}
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(m.out, packager.ConventionalFileName(info)))
	if err != nil {
		return err
	}
	defer func() {
		if e := f.Close(); err == nil {
			err = e
		}
		if err == nil {
			fmt.Println(f.Name())
		}
	}()
	return packager.Package(info, io.Writer(f))
}
