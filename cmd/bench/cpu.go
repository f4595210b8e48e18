package bench

import (
	"bytes"
	"os"
	"strconv"
	"time"
)

// What the system tells of processes, read from Linux's /proc. Elsewhere nothing is known, and
// the report says so.

const tick = 10 * time.Millisecond // USER_HZ is 100 on every Linux

// A cpuTime is CPU time spent until some moment.
type cpuTime struct {
	known          bool
	machine        time.Duration // by all processes; the time that a hypervisor took away included
	server, client time.Duration
}

// readCPU reads it for this process and that of the server (0: not ours to see).
func readCPU(server int) (t cpuTime) {
	stat, err := os.ReadFile("/proc/stat")
	line, _, _ := bytes.Cut(stat, []byte{'\n'})
	columns := bytes.Fields(line)
	if err != nil || len(columns) < 9 {
		return t
	}
	// user, nice, system, steal. Interrupts are left out: those of the loopback are ours.
	for _, i := range [...]int{1, 2, 3, 8} {
		t.machine += ticks(columns[i])
	}
	t.client = processCPU("self")
	if server != 0 {
		t.server = processCPU(strconv.Itoa(server))
	}
	t.known = t.client > 0 || t.machine > 0
	return t
}

func ticks(column []byte) time.Duration {
	n, _ := strconv.ParseInt(string(column), 10, 64) // the kernel writes numbers
	return time.Duration(n) * tick
}

// processCPU is the user and system time of a process; 0 if it is not to be had.
func processCPU(pid string) time.Duration {
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

// residentBytes is the memory of a process that is in RAM; 0 if it is not to be had.
func residentBytes(pid int) int64 {
	statm, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	columns := bytes.Fields(statm)
	if err != nil || len(columns) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(string(columns[1]), 10, 64) // the kernel writes numbers
	return pages * int64(os.Getpagesize())
}

// openFiles is how many files this process may have open, and so may those
// that it starts; 0 if it is not to be had.
func openFiles() int {
	limits, err := os.ReadFile("/proc/self/limits")
	_, line, found := bytes.Cut(limits, []byte("Max open files"))
	columns := bytes.Fields(line)
	if err != nil || !found || len(columns) < 1 {
		return 0
	}
	n, _ := strconv.Atoi(string(columns[0])) // "unlimited" is as good as not to be had
	return n
}
