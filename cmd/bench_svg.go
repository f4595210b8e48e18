package cmd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"relay/cmd/bench"
)

// drawFiles draws what runs before have written with --json. A picture is of one run,
// because figures of two runs do not compare.
func (a *app) drawFiles(cmd *cobra.Command, dir string, files []string) error {
	if dir == "" {
		return usagef("bench takes a FILE only with --svg, which draws what relay bench --json has written")
	}
	if typed := typedFlags(cmd, "svg"); len(typed) > 0 {
		return usagef("%s goes without a FILE: with one, nothing is measured", strings.Join(typed, ", "))
	}
	var all []bench.Picture
	from := map[string]string{} // the files of the pictures
	for _, name := range files {
		pictures, err := readPictures(name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if all == nil {
			all = slices.Clone(pictures)
		}
		for i, p := range pictures {
			if p.SVG == nil {
				continue
			}
			if first := from[p.File]; first != "" {
				return usagef("%s and %s both have the figures of %s, and figures of two runs do not compare: draw them into two folders", first, name, p.File)
			}
			from[p.File], all[i] = name, p
		}
	}
	if len(from) == 0 {
		return fmt.Errorf("nothing is drawn: %s", undrawn(all))
	}
	if err := makePictureFolder(dir); err != nil {
		return err
	}
	return a.draw(dir, all)
}

// typedFlags gives the flags of a command itself that were typed, but one.
func typedFlags(cmd *cobra.Command, but string) (typed []string) {
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if _, set := os.LookupEnv(variable(f)); f.Changed && f.Name != but && !set {
			typed = append(typed, "--"+f.Name)
		}
	})
	return typed
}

func readPictures(name string) ([]bench.Picture, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, err := bench.ReadReport(f)
	if err != nil {
		return nil, err
	}
	return bench.Pictures(r), nil
}

// checkPictures refuses to begin a run that takes minutes if there would be no pictures
// at its end.
func checkPictures(c bench.Config, dir string) error {
	if len(c.Only) > 0 && !slices.ContainsFunc(c.Only, bench.Drawn) {
		return usagef("--svg draws figures of the stages send, ack and scale, and --only names none of them")
	}
	return makePictureFolder(dir)
}

// makePictureFolder makes the folder, if there is none, and finds out whether files can be
// made in it.
func makePictureFolder(dir string) error {
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		var f *os.File
		if f, err = os.CreateTemp(dir, ".relay-bench-*"); err == nil {
			err = errors.Join(f.Close(), os.Remove(f.Name()))
		}
	}
	if err != nil {
		return fmt.Errorf("no pictures can be written there (--svg): %w", err)
	}
	return nil
}

// draw writes the pictures that there are, and says which ones there are not. Where JSON
// is printed, a run has its figures on stdout, so that this goes to stderr.
func (a *app) draw(dir string, all []bench.Picture) error {
	to := a.stdout
	if a.json {
		to = a.stderr
	}
	for _, p := range all {
		if p.SVG == nil {
			continue
		}
		file := filepath.Join(dir, p.File)
		if err := os.WriteFile(file, p.SVG, 0o644); err != nil {
			return fmt.Errorf("a picture cannot be written (--svg): %w", err)
		}
		fmt.Fprintf(to, "drawn: %s\n", file)
	}
	if without := undrawn(all); without != "" {
		fmt.Fprintf(to, "not drawn: %s\n", without)
	}
	return nil
}

// undrawn says which pictures there are not, and why.
func undrawn(all []bench.Picture) string {
	var reasons []string
	why := map[string][]string{}
	for _, p := range all {
		if p.SVG == nil {
			if why[p.Why] == nil {
				reasons = append(reasons, p.Why)
			}
			why[p.Why] = append(why[p.Why], p.File)
		}
	}
	for i, reason := range reasons {
		reasons[i] = strings.Join(why[reason], " and ") + " (" + reason + ")"
	}
	return strings.Join(reasons, "; ")
}
