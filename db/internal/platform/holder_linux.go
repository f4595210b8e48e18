package platform

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// holderTime bounds the search for a holder, because a machine may have very many
// processes.
const holderTime = 5 * time.Second

// Holder names the other processes that have a lock of the database at path, for
// people: "pid 4242 (relay mecha import), stopped". It returns "unknown" if it finds
// none, for example because they belong to another user or run in another container.
func Holder(path string, l Lock) string {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return unknownHolder
	}
	index, err := os.Stat(real + "-shm")
	if err != nil {
		return unknownHolder
	}
	var found []string
	end := time.Now().Add(holderTime)
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range processes {
		if pid := filepath.Base(p); pid != strconv.Itoa(os.Getpid()) && holds(p, index, l, end) {
			found = append(found, describe(p))
		}
	}
	if len(found) == 0 {
		return unknownHolder
	}
	return strings.Join(found, ", ")
}

// holds reports whether a process has a lock through one of its open files. It gives up at
// the time end.
func holds(process string, index os.FileInfo, l Lock, end time.Time) bool {
	names, err := os.ReadDir(process + "/fd")
	if err != nil {
		return false // it has ended, or belongs to another user
	}
	for _, name := range names {
		if time.Now().After(end) {
			return false
		}
		target, err := os.Readlink(process + "/fd/" + name.Name())
		if err != nil || !strings.HasSuffix(target, "-shm") {
			continue
		}
		open, err := os.Stat(process + "/fd/" + name.Name())
		if err != nil || !os.SameFile(open, index) {
			continue
		}
		info, err := os.ReadFile(process + "/fdinfo/" + name.Name())
		if err == nil && l.within(string(info)) {
			return true
		}
	}
	return false
}

// within looks for the lock in the fdinfo of an open file (proc_pid_fdinfo(5)), where a
// line is "lock: 1: OFDLCK ADVISORY WRITE -1 08:01:1234 120 120".
func (l Lock) within(fdinfo string) bool {
	kind := "WRITE"
	if l.shared {
		kind = "READ"
	}
	for line := range strings.Lines(fdinfo) {
		f := strings.Fields(line)
		if len(f) != 9 || f[0] != "lock:" || f[4] != kind {
			continue
		}
		first, err1 := strconv.ParseInt(f[7], 10, 64)
		last, err2 := strconv.ParseInt(f[8], 10, 64)
		if f[8] == "EOF" {
			last, err2 = l.last, nil
		}
		if err1 == nil && err2 == nil && first <= l.last && last >= l.first {
			return true
		}
	}
	return false
}

// describe returns a process's id, the beginning of its command line, and whether it is
// stopped.
func describe(process string) string {
	line, _ := os.ReadFile(process + "/cmdline")
	words := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
	words[0] = filepath.Base(words[0])
	words = words[:min(3, len(words))] // later words may be anything
	text := fmt.Sprintf("pid %s (%s)", filepath.Base(process), strings.Join(words, " "))
	// The state follows the name, which is in parentheses (proc_pid_stat(5)).
	stat, _ := os.ReadFile(process + "/stat")
	_, after, ok := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " ")
	if ok && strings.HasPrefix(after, "T") {
		text += ", stopped"
	}
	return text
}
