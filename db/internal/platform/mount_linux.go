package platform

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// IsMountPoint reports whether the file at path, with its links resolved, is itself the
// root of a mount, as mount --bind FILE FILE makes it. statx(2) reports that since Linux
// 5.8. With an older kernel, IsMountPoint reads the list of mounts. If that fails, too, it
// returns false.
func IsMountPoint(path string) bool {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return false
	}
	var s unix.Statx_t
	err = unix.Statx(unix.AT_FDCWD, real, unix.AT_SYMLINK_NOFOLLOW, 0, &s)
	if err == nil && s.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT != 0 {
		return s.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
	}
	list, err := os.ReadFile("/proc/self/mountinfo")
	return err == nil && slices.Contains(mountPoints(string(list)), real)
}

// mountPoints returns the fifth fields of a list of mounts (proc_pid_mountinfo(5)), in
// which the kernel writes four characters in octal.
func mountPoints(list string) (points []string) {
	plain := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	for line := range strings.Lines(list) {
		if fields := strings.Fields(line); len(fields) > 4 {
			points = append(points, plain.Replace(fields[4]))
		}
	}
	return points
}
