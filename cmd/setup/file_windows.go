package setup

import "io/fs"

// ofOther returns false: Windows grants access by lists, and refuses by itself.
func ofOther(fs.FileInfo) bool { return false }
