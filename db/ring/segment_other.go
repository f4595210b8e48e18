//go:build !unix

package ring

import (
	"encoding/binary"
	"os"
)

// segment is a part of the file. Once put has returned, the kernel has the entry, and keeps
// it even if the process is killed.
type segment struct {
	file   *os.File
	offset int64
}

func openSegment(f *os.File, offset int64) (segment, error) { return segment{f, offset}, nil }

func (s *segment) isOpen() bool { return s.file != nil }

func (s *segment) put(slot int, hash, word uint64) error {
	var entry [slotBytes]byte
	binary.LittleEndian.PutUint64(entry[:], hash)
	binary.LittleEndian.PutUint64(entry[8:], word)
	_, err := s.file.WriteAt(entry[:], s.offset+int64(slot)*slotBytes)
	return err
}

func (s *segment) close() error {
	s.file = nil
	return nil
}

const noFollow = 0

// links is always 1, because package os does not count the names of a file here.
func links(os.FileInfo) uint64 { return 1 }
