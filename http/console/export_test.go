package console

import "io/fs"

// Embedded tells how many bytes the pages, scripts and styles have.
func Embedded() (n int64) {
	_ = fs.WalkDir(files, ".", func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			info, _ := d.Info()
			n += info.Size()
		}
		return err
	})
	return n
}

// ClientOf tells whose wrong attempts count together.
func ClientOf(remote string) string { return clientOf(remote) }
