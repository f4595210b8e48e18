// Package proc reads what Linux tells of processes in /proc: the CPU time, memory and disk
// writes of a server and of this process, and how many files may be open. On other systems
// nothing is known, and each function says so by its zero value.
package proc

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"
)

const tick = 10 * time.Millisecond // USER_HZ is 100 on every Linux

// Times are the CPU times that were spent until some moment, and what was written.
type Times struct {
	known          bool
	machine        time.Duration // by all processes, and by the hypervisor
	server, client time.Duration
	written        int64 // bytes that the server has had written to disk
}

// Spent is the CPU time that a round took.
type Spent struct {
	Known          bool
	Server, Client time.Duration
	Others         float64 // the share of the machine that other programs took
	Written        int64   // bytes that the server has had written to disk
}

// Read reads the CPU times of the machine, of this process, and of the server,
// unless that is 0, and what the server has written.
func Read(server int) (t Times) {
	stat, err := os.ReadFile("/proc/stat")
	line, _, _ := bytes.Cut(stat, []byte{'\n'})
	columns := bytes.Fields(line)
	if err != nil || len(columns) < 9 {
		return t
	}
	of := []int{1, 2, 3, 8} // user, nice, system, steal
	if !interruptsApart() {
		of = append(of, 6, 7) // irq, softirq
	}
	for _, i := range of {
		t.machine += ticks(columns[i])
	}
	t.client = CPU("self")
	if server != 0 {
		t.server = CPU(strconv.Itoa(server))
		t.written = writtenBytes(server)
	}
	t.known = t.client > 0 || t.machine > 0
	return t
}

// Until returns what was spent from a to b, which took so long.
func (a Times) Until(b Times, took time.Duration) Spent {
	s := Spent{Known: a.known && b.known, Server: b.server - a.server, Client: b.client - a.client}
	s.Written = b.written - a.written
	if s.Known {
		others := max(b.machine-a.machine-s.Server-s.Client, 0)
		s.Others = others.Seconds() / took.Seconds() / float64(runtime.NumCPU())
	}
	return s
}

// interruptsApart reports whether the kernel counts the time of interrupts apart
// from the time of processes. The loopback runs in interrupts, for the process
// that sends. If that time is not part of our own, it must not count as the time
// of others either. If it is not known how the kernel counts, the time goes to
// the others, and the figure is doubted.
var interruptsApart = sync.OnceValue(func() bool {
	const setting = "CONFIG_IRQ_TIME_ACCOUNTING=y\n"
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	config, err := os.ReadFile("/boot/config-" + string(bytes.TrimSpace(release)))
	if err == nil {
		return bytes.Contains(config, []byte(setting))
	}
	f, err := os.Open("/proc/config.gz")
	if err != nil {
		return false
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return false
	}
	config, err = io.ReadAll(z)
	return err == nil && bytes.Contains(config, []byte(setting))
})

func ticks(column []byte) time.Duration {
	n, _ := strconv.ParseInt(string(column), 10, 64) // the kernel writes numbers
	return time.Duration(n) * tick
}

// CPU returns the user and system time of a process; 0 if it is not known.
func CPU(pid string) time.Duration {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return 0
	}
	// The second column is the program's name, which may hold anything.
	columns := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(columns) < 13 {
		return 0
	}
	return ticks(columns[11]) + ticks(columns[12])
}

// writtenBytes returns how many bytes a process has had written to disk; 0 if it is not
// known.
func writtenBytes(pid int) int64 {
	counts, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/io")
	_, line, found := bytes.Cut(counts, []byte("\nwrite_bytes: "))
	digits, _, _ := bytes.Cut(line, []byte{'\n'})
	if err != nil || !found {
		return 0
	}
	n, _ := strconv.ParseInt(string(digits), 10, 64) // the kernel writes numbers
	return n
}

// Resident returns how much of a process's memory is in RAM; 0 if it is not
// known.
func Resident(pid int) int64 {
	statm, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	columns := bytes.Fields(statm)
	if err != nil || len(columns) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(string(columns[1]), 10, 64) // the kernel writes numbers
	return pages * int64(os.Getpagesize())
}

// OpenFiles returns how many files this process, and each that it starts, may
// have open; 0 if it is not known.
func OpenFiles() int {
	limits, err := os.ReadFile("/proc/self/limits")
	_, line, found := bytes.Cut(limits, []byte("Max open files"))
	columns := bytes.Fields(line)
	if err != nil || !found || len(columns) < 1 {
		return 0
	}
	n, _ := strconv.Atoi(string(columns[0])) // "unlimited" gives 0 too
	return n
}
