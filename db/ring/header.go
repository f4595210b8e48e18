package ring

import (
	"bytes"
	"encoding/binary"
	"hash/crc64"
	"io"
	"os"
)

// header is the beginning of the file, without its checksum. All numbers are
// little-endian.
type header struct {
	Magic [8]byte
	Store uint64 // Options.Store
	Mark  Mark   // Options.Mark
	Boot  Mark   // names the system's last boot; zero: unknown
	File  uint64 // identity of the file
	Began int64  // as in Past, like the next two
	Since int64
	Floor int64
	Skew  int64 // Options.Skew
	Clean int64 // 1: the ring was closed
}

var magic = [8]byte{'r', 'e', 'l', 'a', 'y', 'n', 'c', '1'}

var checksum = crc64.MakeTable(crc64.ECMA)

func (h header) write(f *os.File) error {
	text, err := binary.Append(nil, binary.LittleEndian, h)
	if err == nil {
		text = binary.LittleEndian.AppendUint64(text, crc64.Checksum(text, checksum))
		_, err = f.WriteAt(text, 0)
	}
	return err
}

// readHeader returns false if the file has no valid header.
func readHeader(f *os.File) (h header, ok bool) {
	text := make([]byte, binary.Size(h)+8)
	if _, err := f.ReadAt(text, 0); err != nil && err != io.EOF {
		return h, false
	}
	body, sum := text[:len(text)-8], text[len(text)-8:]
	if binary.LittleEndian.Uint64(sum) != crc64.Checksum(body, checksum) {
		return h, false
	}
	err := binary.Read(bytes.NewReader(body), binary.LittleEndian, &h)
	return h, err == nil && h.Magic == magic
}
