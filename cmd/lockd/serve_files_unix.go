//go:build unix

package main

import (
	"math"
	"syscall"
)

// openFiles is how many files this process may have open.
func openFiles() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxInt32 // the system tells when there are too many
	}
	return int(min(uint64(limit.Cur), math.MaxInt32))
}
