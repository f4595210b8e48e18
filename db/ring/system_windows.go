package ring

import "os"

// bootMark is zero, because Windows does not name its boots.
func bootMark() (m Mark) { return m }

// identity is the same for all files, because package os has no number that distinguishes
// a file from its copies here.
func identity(*os.File) uint64 { return 1 }
