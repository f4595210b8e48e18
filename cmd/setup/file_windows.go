package setup

import "io/fs"

// ofOther returns false: Windows grants access by lists, and refuses on its own.
func ofOther(fs.FileInfo) bool { return false }
