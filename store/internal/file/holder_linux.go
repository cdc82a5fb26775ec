package file

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// clockTicks is the number of ticks in a second, the unit in which Linux tells the start of a
// process, on every machine that Go runs on.
const clockTicks = 100

// by says who has the file open, as far as the system tells.
func by(path string) string {
	pid := findHolder(path)
	switch pid {
	case 0:
		return ""
	case os.Getpid():
		return fmt.Sprintf(" by this process, %d", pid)
	}
	return fmt.Sprintf(" by process %d%s", pid, describe(pid))
}

// findHolder returns the ID of the process that has the file's lock. It returns 0 if the system
// does not show the process, for example because it is in another container.
func findHolder(path string) int {
	var stat syscall.Stat_t
	if syscall.Stat(path, &stat) != nil {
		return 0
	}
	device := uint64(stat.Dev)
	major := device>>8&0xfff | device>>32&^0xfff
	minor := device&0xff | device>>12&0xffffff00
	file := fmt.Sprintf("%02x:%02x:%d", major, minor, stat.Ino)
	locks, _ := os.ReadFile("/proc/locks") // nothing, if the system does not show it
	for line := range strings.Lines(string(locks)) {
		// 1: FLOCK  ADVISORY  WRITE 4242 fe:00:9986453 0 EOF
		fields := strings.Fields(line)
		if len(fields) < 6 || fields[1] != "FLOCK" || fields[5] != file {
			continue // a process that waits has "->" in the second place
		}
		if pid, err := strconv.Atoi(fields[4]); err == nil && pid > 0 {
			return pid
		}
	}
	return 0
}

// describe says what the process is called and when it began, as far as the system tells.
func describe(pid int) string {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	// 4242 (name) S 1 … The name may have anything in it, what follows has no parentheses.
	open, shut := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open < 0 || shut < open {
		return ""
	}
	text := fmt.Sprintf(" (%s)", stat[open+1:shut])
	const start = 22 - 3 // the field's place, behind the name and counted from 0
	fields := strings.Fields(string(stat[shut+1:]))
	if len(fields) <= start {
		return text
	}
	ticks, err := strconv.ParseInt(fields[start], 10, 64)
	boot, noBoot := bootTime()
	if err != nil || noBoot != nil {
		return text
	}
	since := time.Unix(boot+ticks/clockTicks, 0).UTC()
	return text + ", running since " + since.Format(time.RFC3339)
}

// bootTime returns when the machine began, as a Unix time.
func bootTime() (int64, error) {
	stat, _ := os.ReadFile("/proc/stat") // without it the number cannot be parsed
	_, after, _ := strings.Cut(string(stat), "\nbtime ")
	seconds, _, _ := strings.Cut(after, "\n")
	return strconv.ParseInt(seconds, 10, 64)
}
