package file

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A SeriesCopy is one copy of a series: of a folder with copies of one database.
type SeriesCopy struct {
	Path string
	At   time.Time // when the copy was begun, by the name of the file
}

const (
	seriesPrefix = "relay-"
	seriesTime   = "20060102T150405.000Z"
	seriesEnding = ".db"
)

// SeriesName returns the name of a copy that is begun at a time. It has the time in UTC, so that
// names sort by time.
func SeriesName(at time.Time) string {
	return seriesPrefix + at.UTC().Format(seriesTime) + seriesEnding
}

// SeriesCopies returns the copies of the series in a folder, the newest first. It leaves out
// files with other names. Any goroutine may call it.
func SeriesCopies(folder string) (copies []SeriesCopy, err error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if at, ok := seriesName(e.Name()); ok && e.Type().IsRegular() {
			copies = append(copies, SeriesCopy{filepath.Join(folder, e.Name()), at})
		}
	}
	slices.SortFunc(copies, func(a, b SeriesCopy) int { return b.At.Compare(a.At) })
	return copies, nil
}

// seriesName reads the time in the name of a copy. It returns false for other names.
func seriesName(name string) (at time.Time, ok bool) {
	text, isCopy := strings.CutPrefix(name, seriesPrefix)
	text, isDB := strings.CutSuffix(text, seriesEnding)
	at, err := time.Parse(seriesTime, text)
	return at, isCopy && isDB && err == nil && at.Format(seriesTime) == text
}
