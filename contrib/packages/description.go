package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/files"
	"go.yaml.in/yaml/v3"
)

// description is the entry of nfpms in goreleaser.yaml. A field of it that is not
// here is refused: this program would make other packages than goreleaser.
type description struct {
	PackageName string   `yaml:"package_name"`
	IDs         []string `yaml:"ids"`                // of the builds whose program is in it; this program is given that one
	FileName    string   `yaml:"file_name_template"` // the conventional name of each format
	Formats     []string
	Vendor      string
	Maintainer  string // a template
	Homepage    string // a template
	Description string
	License     string
	Section     string
	Priority    string
	Bindir      string
	MTime       string // a template
	Recommends  []string
	Contents    files.Contents
	Scripts     nfpm.Scripts
	Overrides   map[string]override
}

type override struct {
	Dependencies []string
	APK          nfpm.APK
}

// read reads the only entry of nfpms.
func read(file string) (*description, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var all struct {
		NFPMs []yaml.Node `yaml:"nfpms"`
	}
	if err := yaml.Unmarshal(text, &all); err != nil {
		return nil, err
	}
	if len(all.NFPMs) != 1 {
		return nil, errors.New(file + " has not one entry of nfpms")
	}
	entry, err := yaml.Marshal(&all.NFPMs[0])
	if err != nil {
		return nil, err
	}
	d := &description{}
	strict := yaml.NewDecoder(strings.NewReader(string(entry)))
	strict.KnownFields(true)
	if err := strict.Decode(d); err != nil {
		return nil, err
	}
	return d, errors.Join(fill(&d.Maintainer), fill(&d.Homepage))
}

// fill replaces a template by its text. Of what goreleaser knows, a template may have
// envOrDefault; all else is an error.
func fill(text *string) error {
	known := template.FuncMap{"envOrDefault": func(name, otherwise string) string {
		if value, found := os.LookupEnv(name); found {
			return value
		}
		return otherwise
	}}
	t, err := template.New("goreleaser.yaml").Funcs(known).Parse(*text)
	if err != nil {
		return err
	}
	var b strings.Builder
	err = t.Execute(&b, nil)
	*text = b.String()
	return err
}

// info is what nfpm makes a package of.
func (d *description) info(m *maker, format string) *nfpm.Info {
	over := d.Overrides[format]
	arch := m.arch
	if arch == "arm" {
		arch = "arm7" // which GOARM says
	}
	i := &nfpm.Info{
		Name: d.PackageName, Version: m.version, Arch: arch, Platform: "linux",
		Vendor: d.Vendor, Maintainer: d.Maintainer, Homepage: d.Homepage, Description: d.Description, License: d.License, Section: d.Section, Priority: d.Priority,
	}
	i.Recommends, i.Depends, i.APK = d.Recommends, over.Dependencies, over.APK
	i.Scripts = nfpm.Scripts{PostInstall: m.path(d.Scripts.PostInstall), PreRemove: m.path(d.Scripts.PreRemove), PostRemove: m.path(d.Scripts.PostRemove)}
	i.APK.Scripts.PostUpgrade = m.path(i.APK.Scripts.PostUpgrade)
	i.Contents = files.Contents{{Source: m.program, Destination: filepath.Join(d.Bindir, d.PackageName), FileInfo: &files.ContentFileInfo{Mode: 0o755}}}
	for _, c := range d.Contents {
		own := *c
		own.Source = m.path(c.Source)
		i.Contents = append(i.Contents, &own)
	}
	return i
}

// path is where a file of goreleaser.yaml stands.
func (m *maker) path(name string) string {
	if name == "" {
		return ""
	}
	if rest, found := strings.CutPrefix(name, "generated/"); found {
		return filepath.Join(m.generated, rest)
	}
	return filepath.Join(m.source, name)
}
