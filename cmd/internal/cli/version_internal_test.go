package cli

import (
	"runtime"
	"runtime/debug"
	"testing"
)

// What Go notes of a checkout of a commit, of one of a tag, of other sources, and
// what a release build says.
func TestTheVersionComesFromTheBuild(t *testing.T) {
	defer func(v, c string) { version, commit = v, c }(version, commit)
	revision := []debug.BuildSetting{{Key: "vcs.revision", Value: "623ff16da39a3ee5e6b4b0d3255bfef95601890a"}}
	for _, c := range []struct {
		version, commit, noted string
		settings               []debug.BuildSetting
		want                   Version
	}{
		{"", "", "v0.0.0-20261122145321-623ff16da39a", revision, Version{Version: "0.0.0-20261122145321-623ff16da39a", Commit: "623ff16da39a"}},
		{"", "", "v1.2.3+dirty", revision, Version{Version: "1.2.3+dirty", Commit: "623ff16da39a"}},
		{"", "", "(devel)", nil, Version{Version: "dev", Commit: "unknown"}},
		{"", "", "", nil, Version{Version: "dev", Commit: "unknown"}},
		{"1.2.3", "0123abc", "v0.0.0-20261122145321-623ff16da39a", revision, Version{Version: "1.2.3", Commit: "0123abc"}},
	} {
		version, commit = c.version, c.commit
		c.want.Go = runtime.Version()
		if got := versionOf(&debug.BuildInfo{Main: debug.Module{Version: c.noted}, Settings: c.settings}); got != c.want {
			t.Errorf("%+v, want %+v", got, c.want)
		}
	}
}
