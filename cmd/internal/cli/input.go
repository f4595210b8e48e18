package cli

import (
	"io"
	"os"
	"strings"
)

// Open opens the file that an argument names as FILE or @FILE, or stdin for -. It also returns the size, or 0
// if the size is not known.
func (a *App) Open(name string) (io.ReadCloser, int64, error) {
	if name == "-" {
		return io.NopCloser(a.Stdin), 0, nil
	}
	f, err := os.Open(strings.TrimPrefix(name, "@"))
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, info.Size(), nil
}

// Input reads the whole file that an argument names. Without an argument, or with -, it reads stdin.
func (a *App) Input(args []string) ([]byte, error) {
	if len(args) == 0 {
		return io.ReadAll(a.Stdin)
	}
	in, _, err := a.Open(args[0])
	if err != nil {
		return nil, err
	}
	defer in.Close()
	return io.ReadAll(in)
}
