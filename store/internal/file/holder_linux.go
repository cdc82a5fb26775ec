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
	text := fmt.Sprintf(" by process %d", pid)
	name, since := describe(pid)
	if name != "" {
		text += fmt.Sprintf(" (%s)", name)
	}
	if !since.IsZero() {
		text += ", running since " + since.UTC().Format(time.RFC3339)
	}
	return text
}

// findHolder returns the ID of the process that has the file's lock. It returns 0 if the system
// does not show the process, for example because it is in another container.
func findHolder(path string) int {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		return 0
	}
	device := uint64(stat.Dev)
	major := device>>8&0xfff | device>>32&^0xfff
	minor := device&0xff | device>>12&0xffffff00
	file := fmt.Sprintf("%02x:%02x:%d", major, minor, stat.Ino)
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

// describe returns the name of a process and when it began, as far as the system tells.
func describe(pid int) (name string, since time.Time) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", time.Time{}
	}
	// 4242 (name) S 1 … The name may have anything in it, what follows has no parentheses.
	open, shut := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open < 0 || shut < open {
		return "", time.Time{}
	}
	name = string(stat[open+1 : shut])
	const start = 22 - 3 // the field's place, behind the name and counted from 0
	fields := strings.Fields(string(stat[shut+1:]))
	if len(fields) <= start {
		return name, time.Time{}
	}
	ticks, err := strconv.ParseInt(fields[start], 10, 64)
	boot, ok := bootTime()
	if err != nil || !ok {
		return name, time.Time{}
	}
	return name, time.Unix(boot+ticks/clockTicks, 0)
}

// bootTime returns when the machine began, as a Unix time.
func bootTime() (seconds int64, ok bool) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(stat)) {
		if text, found := strings.CutPrefix(line, "btime "); found {
			seconds, err = strconv.ParseInt(strings.TrimSpace(text), 10, 64)
			return seconds, err == nil
		}
	}
	return 0, false
}
