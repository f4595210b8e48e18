package console

import "io/fs"

// Embedded says how many bytes the pages, scripts and styles have.
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

// OfOldest has a verdict name its message as the oldest.
func OfOldest(verdict string) string { return ofOldest(verdict) }
