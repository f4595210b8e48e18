//go:build unix

package ring

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime/debug"
	"syscall"

	"golang.org/x/sys/unix"
)

// segment is a mapped part of the file. What put has written is the kernel's, even if
// the process is killed.
type segment struct{ bytes []byte }

func openSegment(f *os.File, offset int64) (segment, error) {
	b, err := unix.Mmap(int(f.Fd()), offset, segmentBytes, unix.PROT_READ|unix.PROT_WRITE, mapFlags)
	return segment{b}, err
}

func (s *segment) isOpen() bool { return s.bytes != nil }

// put writes an entry. A fault of the mapping is an error: the disk has no room for a
// block of a file system that copies on write, or somebody has cut the file off.
func (s *segment) put(slot int, hash, word uint64) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("writing the mapped file: %v", fault)
		}
	}()
	entry := s.bytes[slot*slotBytes:][:slotBytes]
	binary.LittleEndian.PutUint64(entry, hash)
	binary.LittleEndian.PutUint64(entry[8:], word)
	return nil
}

// close hands what was written to the file, so that a sync of the file covers it.
func (s *segment) close() error {
	if s.bytes == nil {
		return nil
	}
	err := unix.Msync(s.bytes, unix.MS_ASYNC)
	if unmapped := unix.Munmap(s.bytes); err == nil {
		err = unmapped
	}
	s.bytes = nil
	return err
}

const noFollow = unix.O_NOFOLLOW

// links is how many names a file has.
func links(info os.FileInfo) uint64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(s.Nlink)
	}
	return 1
}
