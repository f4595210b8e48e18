package cli

import (
	"cmp"
	"runtime"
	"runtime/debug"
	"strings"
)

// A release build sets both: -ldflags "-X relay/cmd/internal/cli.version=1.2.3 -X
// relay/cmd/internal/cli.commit=0123abc".
var version, commit string

// Version identifies this program.
type Version struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
	Go      string `json:"go"`
}

// BuildVersion returns the version that the build recorded.
func BuildVersion() Version {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return versionOf(info)
}

// versionOf fills in what no release build has set from what Go recorded. For a git checkout that is the commit
// and a version derived from it (golang.org/ref/mod#pseudo-versions).
func versionOf(info *debug.BuildInfo) Version {
	v := Version{Version: version, Commit: commit, Go: runtime.Version()}
	if noted, found := strings.CutPrefix(info.Main.Version, "v"); found && v.Version == "" {
		v.Version = noted
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && v.Commit == "" {
			v.Commit = s.Value[:min(12, len(s.Value))]
		}
	}
	v.Version, v.Commit = cmp.Or(v.Version, "dev"), cmp.Or(v.Commit, "unknown")
	return v
}
