package sqlite

import (
	"os"
	"slices"
	"sync"
)

// connected has the files to which this process has connections, for ReadHeader. Where locks belong to a
// process (fcntl(2); see Open about Linux), the close of any descriptor of a file drops all locks of the
// process on it. Another process could then remove the log of a file that is still open here.
// https://sqlite.org/howtocorrupt.html, section 2.2
var connected struct {
	mu    sync.Mutex
	files []*connectedFile
}

// connectedFile is one of these files. connected.mu guards its fields.
type connectedFile struct {
	info  os.FileInfo
	conns int
	kept  []*os.File // by which ReadHeader has read it; they are closed after the last connection
}

// connect counts a connection to the file at path, which is about to be opened. disconnect must follow.
// The result is nil if there is no file.
func connect(path string) *connectedFile {
	connected.mu.Lock()
	defer connected.mu.Unlock()
	info, err := os.Stat(path)
	if err != nil {
		return nil
	}
	f := connectedTo(info)
	if f == nil {
		f = &connectedFile{info: info}
		connected.files = append(connected.files, f)
	}
	f.conns++
	return f
}

// connectedTo finds the file among those with connections; nil: it is none of them. connected.mu is held.
func connectedTo(info os.FileInfo) *connectedFile {
	for _, f := range connected.files {
		if os.SameFile(f.info, info) {
			return f
		}
	}
	return nil
}

// disconnect stops counting a connection, which has been closed.
func (f *connectedFile) disconnect() {
	if f == nil {
		return
	}
	connected.mu.Lock()
	defer connected.mu.Unlock()
	if f.conns--; f.conns > 0 {
		return
	}
	for _, k := range f.kept {
		k.Close()
	}
	connected.files = slices.DeleteFunc(connected.files, func(other *connectedFile) bool { return other == f })
}

// ReadHeader reads the first bytes of the file at path, as many as b has room for, without SQLite. It is
// the one way to do that in a process that may have connections to the file: it drops none of their locks.
// The error is io.EOF if the file is shorter. Safe for concurrent use.
func ReadHeader(path string, b []byte) error {
	connected.mu.Lock()
	defer connected.mu.Unlock()
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if to := connectedTo(info); to != nil && len(to.kept) > 0 {
		_, err = to.kept[0].ReadAt(b, 0)
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	_, err = f.ReadAt(b, 0)
	if info, statErr := f.Stat(); statErr == nil {
		if to := connectedTo(info); to != nil {
			to.kept = append(to.kept, f)
			return err
		}
	}
	f.Close()
	return err
}
