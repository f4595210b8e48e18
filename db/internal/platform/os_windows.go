package platform

import (
	"os"

	"golang.org/x/sys/windows"
)

// SyncDir does nothing: Windows has no fsync of directories.
func SyncDir(string) error { return nil }

// FreeDisk returns how many bytes the user can still write on the disk of path.
func FreeDisk(path string) (int64, error) {
	p, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return 0, err
	}
	var free uint64
	if err := windows.GetDiskFreeSpaceEx(p, &free, nil, nil); err != nil {
		return 0, err
	}
	return int64(free), nil
}

// ReadableByOthers is always false on Windows, where access lists decide.
func ReadableByOthers(string) (bool, error) { return false, nil }

// Links returns how many names (hard links) the file at path has.
func Links(path string) (int, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var info windows.ByHandleFileInformation
	if err := windows.GetFileInformationByHandle(windows.Handle(f.Fd()), &info); err != nil {
		return 0, err
	}
	return int(info.NumberOfLinks), nil
}

// OnlyOurs is always true on Windows, where access lists decide.
func OnlyOurs(os.FileInfo) bool { return true }

// GiveToOwnerOf does nothing on Windows, where a new file has the access list of its folder.
func GiveToOwnerOf(string, string) {}
