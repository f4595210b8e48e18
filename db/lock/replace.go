package lock

import "os"

// Replace writes a small file, readable by its owner only. At any time, path has a
// complete file: the old or the new one. One goroutine of one process may write a path at
// a time.
func Replace(path string, text []byte) error {
	part := path + ".new"
	_ = os.Remove(part) // a killed process may have left it
	f, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if e := f.Sync(); err == nil {
		err = e
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(part, path)
	}
	if err != nil {
		_ = os.Remove(part)
	}
	return err
}
