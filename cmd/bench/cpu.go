package bench

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"strconv"
	"sync"
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
	of := []int{1, 2, 3, 8} // user, nice, system, steal
	if !interruptsApart() {
		of = append(of, 6, 7) // irq, softirq
	}
	for _, i := range of {
		t.machine += ticks(columns[i])
	}
	t.client = processCPU("self")
	if server != 0 {
		t.server = processCPU(strconv.Itoa(server))
	}
	t.known = t.client > 0 || t.machine > 0
	return t
}

// interruptsApart tells whether the kernel leaves the time of interrupts out of
// that of processes. The loopback works in interrupts, on behalf of whoever
// sends: where they are not in our own time, they must not be in that of
// others. Where it is not known, others get the blame, and the figure a doubt.
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
