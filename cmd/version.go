package cmd

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"relay/http"
)

// A release build sets both: -ldflags "-X relay/cmd.version=1.2.3 -X relay/cmd.commit=0123abc".
var version, commit string

// buildVersion says which program this is.
func buildVersion() http.Version {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return versionOf(info)
}

// versionOf takes from what Go noted what no release build has set. Of a git checkout
// that is the commit, and a version that follows from it
// (golang.org/ref/mod#pseudo-versions).
func versionOf(info *debug.BuildInfo) http.Version {
	v := http.Version{Version: version, Commit: commit, Go: runtime.Version()}
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

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  relay version --json",
		Args:    exactly(0, "no arguments"),
		RunE: func(*cobra.Command, []string) error {
			v := buildVersion()
			if a.json {
				return a.printJSON(v)
			}
			_, err := fmt.Fprintf(a.stdout, "relay %s (commit %s, %s)\n", v.Version, v.Commit, v.Go)
			return err
		},
	}
}
