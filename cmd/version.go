package cmd

import (
	"cmp"
	"runtime"
	"runtime/debug"
	"strings"
)

// A release build sets both: -ldflags "-X relay/cmd.version=1.2.3 -X relay/cmd.commit=0123abc".
var version, commit string

// buildInfo says which program this is.
type buildInfo struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
	Go      string `json:"go"`
}

// buildVersion returns what the build has noted.
func buildVersion() buildInfo {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return versionOf(info)
}

// versionOf takes from what Go noted what no release build has set. Of a git checkout
// that is the commit, and a version that follows from it
// (golang.org/ref/mod#pseudo-versions).
func versionOf(info *debug.BuildInfo) buildInfo {
	v := buildInfo{Version: version, Commit: commit, Go: runtime.Version()}
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
