package measure

import (
	"fmt"
	"syscall"
	"time"
)

// Cost is what a number of operations took. The zero value is no measurement.
type Cost struct {
	Operations int
	Wall       time.Duration
	CPU        time.Duration // of the whole process, on all cores
}

// Stopwatch measures a cost. Start gives one that runs.
type Stopwatch struct {
	wall time.Time
	cpu  time.Duration
}

// Start returns a stopwatch that runs from now.
func Start() Stopwatch { return Stopwatch{cpu: processCPU(), wall: time.Now()} }

// Stop returns what the operations since Start took. The stopwatch runs on.
func (w Stopwatch) Stop(operations int) Cost {
	wall := time.Since(w.wall)
	return Cost{Operations: operations, Wall: wall, CPU: processCPU() - w.cpu}
}

// processCPU is the time that the process has spent on all cores, in user and system mode.
func processCPU() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(fmt.Sprintf("measure: ask for the CPU time of the process: %v", err))
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
