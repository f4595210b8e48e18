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

// segment is a mapped part of the file. Once put has returned, the kernel has the entry,
// and keeps it even if the process is killed.
type segment struct{ bytes []byte }

func openSegment(f *os.File, offset int64) (segment, error) {
	b, err := unix.Mmap(int(f.Fd()), offset, segmentBytes, unix.PROT_READ|unix.PROT_WRITE, mapFlags)
	return segment{b}, err
}

func (s *segment) isOpen() bool { return s.bytes != nil }

// put writes an entry. It returns an error if the mapping faults, because the file was
// truncated, or because a copy-on-write file system has no room for a block.
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

// close hands the entries to the file, so that a sync of the file covers them.
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

// links returns how many names a file has.
func links(info os.FileInfo) uint64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(s.Nlink)
	}
	return 1
}
